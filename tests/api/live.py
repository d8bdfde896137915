"""Live sessions over the real app and a real socket: their clients, and a transcriber that follows a script.

Sound is 16 kHz; any sample but 0 is speech. The real network: tests/audio/test_listener.py.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, cast, get_args

import pytest
from openai.types.realtime import RealtimeServerEvent
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from audio.listener import FRAME, RATE, Frames
from contract.transcription.engine import Segment, TranscriptionJob, TranscriptUpdate
from deployments.ingress.flows.realtime import transcriber
from state.accounts import api_keys
from tests.api.conftest import Api, app_over
from tests.api.engines import LocalEngine
from tests.api.ports import at_port

Event = dict[str, Any]

PATH = "/v1/realtime?intent=transcription"
TRANSCRIPTION = "conversation.item.input_audio_transcription"
MODEL = "voxtral-mini-transcribe"
OF_SDK: dict[str, Any] = {
    get_args(event.model_fields["type"].annotation)[0]: event
    for event in get_args(get_args(RealtimeServerEvent)[0])
    if "type" in event.model_fields
}
"""Its events by their types."""

WAIT_S = 10.0
"""For what has to come."""
SECOND = b"\1\0" * RATE
TURN = b"\1\0" * 8192 + bytes(2 * 16384)
"""Speech, and silence that ends it."""


class ScriptedListener:
    """Finds speech where samples are not 0."""

    def __init__(self) -> None:
        self.open = 0

    def stream(self, format: Mapping[str, Any], owner: str) -> ScriptedStream:
        assert format["rate"] == RATE
        self.open += 1
        return ScriptedStream(self)

    async def speech_s(self, samples: bytes, rate: int, owner: str = "") -> float:
        """Seconds of samples that are not 0."""
        return len(array("h", samples).tobytes().replace(b"\0\0", b"")) / 2 / rate

    async def close(self) -> None:
        pass


class ScriptedStream:
    """One session's sound."""

    def __init__(self, listener: ScriptedListener) -> None:
        self._listener, self._rest = listener, b""

    async def listen(self, sound: bytes) -> Frames:
        waiting = self._rest + sound
        whole = len(waiting) // (2 * FRAME) * 2 * FRAME
        self._rest = waiting[whole:]
        frames = (waiting[start : start + 2 * FRAME] for start in range(0, whole, 2 * FRAME))
        return sound, array("f", [float(any(frame)) for frame in frames])

    async def end(self) -> Frames:
        self._listener.open -= 1
        return b"", ()


class ScriptedTranscriber:
    """A transcriber that gives what its script makes of the seconds of each recording.

    Attributes:
        heard_s: seconds of each recording, in order.
        jobs: what was asked.
    """

    def __init__(self, script: Callable[[float], Awaitable[str]]) -> None:
        self.script = script
        self.heard_s: list[float] = []
        self.jobs: list[TranscriptionJob] = []

    async def transcribe(self, job: TranscriptionJob) -> AsyncGenerator[TranscriptUpdate, None]:
        assert isinstance(job.audio, bytes)
        with wave.open(io.BytesIO(job.audio)) as file:
            seconds = file.getnframes() / file.getframerate()
        self.heard_s.append(seconds)
        self.jobs.append(job)
        yield TranscriptUpdate(seconds)
        text = await self.script(seconds)
        yield TranscriptUpdate(seconds, seconds, "en", tuple(Segment(line, 0.0, seconds) for line in text.split("\n")))


async def hello(seconds: float) -> str:
    """The text where a test does not care."""
    return "hello there"


def transcriber_of(api: Api, model: str = MODEL) -> LocalEngine:
    return api.engine(api.service.catalog.transcription[model].deployment)


def hearing(api: Api, script: Callable[[float], Awaitable[str]] = hello) -> ScriptedTranscriber:
    """Has the default transcriber follow a script."""
    made = transcriber_of(api).adapter = ScriptedTranscriber(script)
    return made


def check(event: Event) -> None:
    """Fails for an event that the SDK does not know, unless its name says that it is ours."""
    if event["type"].startswith("parlance."):
        return
    if "session" in event:
        event = json.loads(json.dumps(event))
        event["session"]["audio"]["input"]["format"]["rate"] = 24_000  # the one that the SDK has a type for
    OF_SDK[event["type"]].model_validate(event)


def scripted(api: Api) -> Api:
    """Has `api` find speech by rule."""
    api.service.live.listener = cast(Any, ScriptedListener())
    return api


@pytest.fixture(autouse=True)
def scripted_speech(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has `api` find speech by rule, transcribe it by a script, and try again at once."""
    monkeypatch.setattr(transcriber, "RETRY_S", (0.0, 0.0, 0.0))
    hearing(scripted(api))


async def revoke(api: Api, key: str) -> None:
    await api.state.database.run(partial(api_keys.revoke, public_id=key.split("_")[1], now_s=1))


class Live:
    """The client of one session. Every event that comes is one of the SDK's types, or ours.

    Attributes:
        events: all that came, in order.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[Event] = []

    async def send(self, type: str, **members: Any) -> None:
        await self.socket.send(json.dumps({"type": type, **members}))

    async def append(self, sound: bytes, **members: Any) -> None:
        await self.send("input_audio_buffer.append", audio=base64.b64encode(sound).decode(), **members)

    async def speak(self, seconds: float) -> None:
        await self.append(b"\1\0" * int(seconds * RATE))

    async def pause(self, seconds: float = 1.0) -> None:
        await self.append(b"\0\0" * int(seconds * RATE))

    async def update(self, **of_input: Any) -> Event:
        """Sets the session, and gives it as it is then."""
        await self.send("session.update", session={"type": "transcription", "audio": {"input": of_input}})
        session: Event = (await self.next("session.updated"))["session"]
        return session

    async def next(self, type: str) -> Event:
        """The next event of this type; those before it are kept in `events`."""
        async with asyncio.timeout(WAIT_S):
            while True:
                event = json.loads(await self.socket.recv())
                self.events.append(event)
                check(event)
                if event["type"] == type:
                    return event
                assert event["type"] != "error", event

    async def error(self) -> Event:
        """The next event, which is an error."""
        async with asyncio.timeout(WAIT_S):
            event = json.loads(await self.socket.recv())
        self.events.append(event)
        assert event["type"] == "error", event
        check(event)
        error: Event = event["error"]
        return error

    async def text(self) -> str:
        """The next record."""
        transcript: str = (await self.next(f"{TRANSCRIPTION}.completed"))["transcript"]
        return transcript

    async def end(self) -> Event:
        """Ends the session, and gives its last ledger."""
        await self.send("parlance.session.end")
        while not (event := await self.next("parlance.session.ledger"))["is_last"]:
            pass
        ledger: Event = event["ledger"]
        return ledger

    async def closed(self) -> int | None:
        """The code with which the server closes."""
        async with asyncio.timeout(WAIT_S):
            await self.socket.wait_closed()
        return self.socket.close_code

    async def is_well(self) -> bool:
        """Says if the session still writes down what is said."""
        await self.speak(0.5)
        await self.pause()
        return bool(await self.text())


@asynccontextmanager
async def listening(api: Api, path: str = PATH, key: str | None = None, **options: Any) -> AsyncIterator[Live]:
    """A session at 16 kHz over `api`, after `session.created`."""
    async with at_port(app_over(api.service)) as address, opened(api, address, path, key, **options) as live:
        yield live


@asynccontextmanager
async def opened(
    api: Api, address: str, path: str = PATH, key: str | None = None, **options: Any
) -> AsyncIterator[Live]:
    """The same at an app that listens."""
    async with connection(api, address, path, key, **options) as socket:
        live = Live(socket)
        await live.next("session.created")
        await live.update(format={"type": "audio/pcm", "rate": RATE})
        live.events.clear()
        yield live


@asynccontextmanager
async def sessions(api: Api, *keys: str) -> AsyncIterator[tuple[str, list[Live]]]:
    """A session of each key, and where the app listens."""
    async with at_port(app_over(api.service)) as address, AsyncExitStack() as stack:
        yield address, [await stack.enter_async_context(opened(api, address, key=key)) for key in keys]


def connection(api: Api, address: str, path: str = PATH, key: str | None = None, **options: Any) -> connect:
    headers = {"Authorization": f"Bearer {api.everything if key is None else key}"} if key != "" else {}
    return connect(address.replace("http", "ws") + path, additional_headers=headers, max_size=None, **options)


async def refusal(api: Api, key: str | None = None, path: str = PATH, address: str = "", **options: Any) -> Any:
    """Status and code of the reply to an upgrade, at an app that listens or at one of its own."""
    async with nullcontext(address) if address else at_port(app_over(api.service)) as to:
        with pytest.raises(InvalidStatus) as error:
            await connection(api, to, path, key, **options)
    response = error.value.response
    assert response.headers["x-request-id"].startswith("req_")
    return response.status_code, json.loads(response.body)["error"]["code"]


def has_error(error: Event, code: str, param: str | None = None, says: str = "") -> bool:
    """Says if an error event has that code and field, and a sentence with that part."""
    assert (error["code"], error["param"]) == (code, param), error
    assert says in error["message"]
    return True
