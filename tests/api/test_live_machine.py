"""A live session as a state machine: whatever happens to it, every sample and every second has its place.

The app with its gate, its replica and its books, all in virtual time. Each sample differs from all others, so that the
engine knows which part of the session it was given; its text begins with that part's start and ends with its end.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import random
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.pool import StaticPool

from audio.listener import FRAME, RATE, Frames, ListenerFailed
from contract.access import Scope
from contract.errors import AUDIO_UNREADABLE, BUSY, FAULTS, STATE_UNAVAILABLE, UPSTREAM_ERROR
from contract.telemetry import LIVE_SECONDS
from contract.transcription.engine import Segment, TranscriptionJob, TranscriptUpdate
from deployments.ingress.context import Service
from deployments.ingress.flows.realtime import notifier, session
from state import State
from state.billing import reservation
from state.billing.reservation import TIME_LIMITS
from state.blobs.open import open_blobs
from state.database.base import RowRefused
from state.database.tables import metadata
from state.keys import open_secrets
from state.rates import Rates
from tests.api.asgi import http_scope
from tests.api.conftest import Api, app_over, census, client_of
from tests.api.engines import local_engines
from tests.api.live import MODEL, TRANSCRIPTION, Event, check, revoke, transcriber_of
from tests.catalogs import behaving, chat
from tests.waiting import VirtualLoop, settled, until

T = TypeVar("T")

CATALOG = behaving(obedient=chat("obedient"))
EXAMPLES = int(os.environ.get("LIVE_EXAMPLES", "40"))
NOW_S = 1_800_000_000
MOST_S = 200
"""Seconds of sound that a session gets."""
_NOISE, _ONES = int.from_bytes(random.Random(0).randbytes(2 * RATE * MOST_S)), int.from_bytes(b"\1\0" * RATE * MOST_S)
SPEECH = (_NOISE | _ONES).to_bytes(2 * RATE * MOST_S)
SILENCE = (_NOISE & ~_ONES).to_bytes(2 * RATE * MOST_S)
"""Samples without a 1 in their first byte."""
FRAME_ONES = int.from_bytes(b"\1\0" * FRAME)
WORD = 128
"""Samples of a word: a draft of one frame more has more words."""
OF_ITEM = re.compile("(s(d*(ec?|eca|ecaod*[KF]?)?)|c|ca|caod*[KF]?)")
"""Events of an item, in order: started, delta, stopped, committed, added, done, completed, failed."""
LETTERS = {
    "input_audio_buffer.speech_started": "s",
    "input_audio_buffer.speech_stopped": "e",
    "input_audio_buffer.committed": "c",
    "conversation.item.added": "a",
    "conversation.item.done": "o",
    f"{TRANSCRIPTION}.delta": "d",
    f"{TRANSCRIPTION}.completed": "K",
    f"{TRANSCRIPTION}.failed": "F",
}
MALFORMED = ["", "[]", '{"type": "response.create"}', '{"type": "input_audio_buffer.append", "audio": "AAA"}', b"\1\0"]
TURN_DETECTIONS = [None, {"type": "server_vad", "silence_duration_ms": 200}, {"type": "server_vad"}]


class LoopTime:
    """Stands for the module `time`, and for the database's clock: the time of the loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def time(self) -> float:
        return NOW_S + self.monotonic()

    __call__ = time

    async def adjust(self, database: Any) -> None:
        """The database has no other time."""


class InlineDatabase:
    """Runs transactions at once, and answers a little later; a task that is cancelled meanwhile undoes nothing."""

    def __init__(self) -> None:
        self.is_down = False
        self._engine = create_engine("sqlite://", poolclass=StaticPool)
        metadata.create_all(self._engine)

    async def run(self, transaction: Callable[[Connection], T], **_: Any) -> T:
        if self.is_down:
            raise STATE_UNAVAILABLE()
        try:
            with self._engine.begin() as connection:
                result = transaction(connection)
        except IntegrityError:
            raise RowRefused from None
        await asyncio.sleep(0.001)
        return result

    async def close(self) -> None:
        self._engine.dispose()


class NumberedListener:
    """Finds speech by the samples.

    Attributes:
        sound: all samples that it took of the session.
        delay_s: of the next answer; failure: it raises that instead.
    """

    def __init__(self) -> None:
        self.open, self.sound, self.delay_s = 0, bytearray(), 0.0
        self.failure: type[Exception] | None = None
        self._rest = b""

    def stream(self, format: Any, owner: str) -> NumberedListener:
        self.open += 1
        self._rest = b""
        return self

    async def listen(self, sound: bytes) -> Frames:
        delay_s, self.delay_s = self.delay_s, 0.0
        await asyncio.sleep(delay_s)
        if failure := self.failure:
            self.failure, self._rest = None, b""
            raise failure
        self.sound += sound
        waiting = self._rest + sound
        whole = len(waiting) // (2 * FRAME) * 2 * FRAME
        self._rest = waiting[whole:]
        frames = (waiting[start : start + 2 * FRAME] for start in range(0, whole, 2 * FRAME))
        return sound, [float(int.from_bytes(frame) & FRAME_ONES != 0) for frame in frames]

    async def end(self) -> Frames:
        self.open -= 1
        return b"", ()

    async def close(self) -> None:
        pass


@dataclass(eq=False)
class Call:
    """A part of the session that the engine was given, and how the call ended."""

    start: int
    end: int
    outcome: str = "left"

    @property
    def words(self) -> int:
        """Words of its text, but for the last one."""
        return 1 + (self.end - self.start) // WORD

    @property
    def text(self) -> str:
        return " ".join([str(self.start), *["word"] * (self.words - 1), f"to-{self.end}"])


class NumberedTranscriber:
    """An adapter that knows what it was given.

    Attributes:
        answer: gives its error, or None; is_silent: its texts are empty; delay_s: until its answer.
        calls: of the session, in order; answered: the last one with an answer.
    """

    def __init__(self, listener: NumberedListener) -> None:
        self.answer: Callable[[], Exception] | None = None
        self.is_silent, self.delay_s = False, 0.3
        self.calls: list[Call] = []
        self.answered = Call(0, 0)
        self._listener = listener

    async def transcribe(self, job: TranscriptionJob) -> AsyncGenerator[TranscriptUpdate, None]:
        assert isinstance(job.audio, bytes)
        samples = job.audio[44:]
        start = self._listener.sound.find(samples) // 2
        assert start >= 0, "samples that never came, or not in this order"
        call = Call(start, start + len(samples) // 2)
        self.calls.append(call)
        answer, text = self.answer, "" if self.is_silent else call.text
        yield TranscriptUpdate(1.0)
        await asyncio.sleep(self.delay_s)
        call.outcome = "failed" if answer else "answered"
        if answer:
            raise answer()
        self.answered = call
        yield TranscriptUpdate(1.0, 1.0, "en", (Segment(text, 0.0, 1.0),))


@dataclass
class Item:
    """A turn, as its events show it; its start is between two positions."""

    first_start: int
    last_start: int
    is_detected: bool
    events: str = ""
    deltas: str = ""
    calls_before: int = 0
    text_of: Call | None = None
    error: str = ""
    is_cleared: bool = False


@dataclass
class Client:
    """One session through the websocket of the app, and what its events say.

    Attributes:
        events: all, in the order in which the server sent them.
        items: by their ids; open: the one that speech has begun; before: the one that was committed last.
        boundary: end of the last turn, where the client ends them.
        answers: errors by the event that they are about.
    """

    listener: NumberedListener
    engine: NumberedTranscriber
    events: list[Event] = field(default_factory=list)
    items: dict[str, Item] = field(default_factory=dict)
    open: Item | None = None
    before: str | None = None
    boundary: int = 0
    boundaries: set[int] = field(default_factory=set)
    detection: Any = None
    answers: dict[str, Event] = field(default_factory=dict)
    sent: dict[str, tuple[bool, int]] = field(default_factory=dict)
    status: int = 0
    code: int | None = None
    ledger: Event | None = None
    failure: AssertionError | None = None
    is_ending: bool = False
    may_crash: bool = False
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    inbox: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)

    @property
    def received(self) -> int:
        return len(self.listener.sound) // 2

    @property
    def is_over(self) -> bool:
        """It answers no more: it was closed, has left, or is not read."""
        return self.code is not None or self.serving.done() or not self.reads.is_set()

    def connect(self, api: Api, key: str) -> None:
        self.reads.set()
        self.inbox.put_nowait({"type": "websocket.connect"})
        headers = [(b"authorization", f"Bearer {key}".encode())]
        scope = http_scope("GET", "/v1/realtime", headers, b"intent=transcription")
        scope |= {"type": "websocket", "subprotocols": [], "extensions": {"websocket.http.response": {}}}
        self.serving = asyncio.create_task(app_over(api.service)(scope, self.inbox.get, self._send), name="socket")

    async def ask(self, message: str | bytes, *, waits: bool = True) -> list[Event]:
        """Sends a message; the events until it is carried out."""
        count, done = len(self.events), asyncio.Event()
        kind = "bytes" if isinstance(message, bytes) else "text"
        self.inbox.put_nowait({"type": "websocket.receive", kind: message, "done": done.set})
        if waits:
            waiting = asyncio.create_task(done.wait())
            await asyncio.wait({self.serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        return self.events[count:]

    async def _send(self, message: Any) -> None:
        match message["type"]:
            case "websocket.accept":
                self.status = 101
            case "websocket.http.response.start":
                self.status = message["status"]
            case "websocket.close":
                self.code = message["code"]
                self.inbox.put_nowait({"type": "websocket.disconnect", "code": self.code})
            case "websocket.send":
                try:
                    self._note(json.loads(message["text"]))
                except AssertionError as error:
                    self.failure = error  # which the server would take for its own
                await self.reads.wait()

    def _note(self, event: Event) -> None:
        assert self.code is None
        assert self.ledger is None, "an event after the last ledger"
        check(event)
        self.events.append(event)
        if letter := LETTERS.get(event["type"]):
            self._note_item(event, letter)
        match event["type"]:
            case "session.created" | "session.updated":
                if event["session"]["audio"]["input"]["turn_detection"] != self.detection:
                    self._bound()
                self.detection = event["session"]["audio"]["input"]["turn_detection"]
            case "input_audio_buffer.cleared":
                if self.open:
                    self.open.is_cleared, self.open = True, None
                self._bound()
            case "parlance.session.expiring":
                self.is_ending = True
            case "parlance.session.ledger":
                ledger = event["ledger"]
                samples = {name: round(RATE * value) for name, value in ledger.items() if name != "unheard"}
                assert samples["received_s"] == self.received == samples["speech_s"] + samples["silence_s"]
                assert samples["speech_s"] == samples["heard_s"] + samples["unheard_s"] + samples["pending_s"]
                self.ledger = ledger if event["is_last"] else None
            case "error" if event["error"]["event_id"]:
                self.answers[event["error"]["event_id"]] = event["error"]

    def _bound(self) -> None:
        self.boundary = self.received
        self.boundaries.add(self.received)

    def _note_item(self, event: Event, letter: str) -> None:
        id = event["item_id"] if "item_id" in event else event["item"]["id"]
        if letter == "s":
            start = event["audio_start_ms"] * RATE // 1000
            assert self.open is None
            self.open = self.items[id] = Item(start, start + 15, is_detected=True)
        if letter == "c":
            if id not in self.items:
                self.items[id] = Item(self.boundary, self.boundary, is_detected=False)
            self._bound()
            self.open = None
            assert event["previous_item_id"] == self.before
            self.before = id
            self.items[id].calls_before = len(self.engine.calls)
        item = self.items[id]
        item.events += letter
        assert OF_ITEM.fullmatch(item.events), item
        assert not item.is_cleared, item
        if letter == "d":
            item.deltas += event["delta"]
        if letter == "F":
            item.error = event["error"]["code"]
        if letter == "K":
            item.text_of = call = self.engine.answered
            assert event["transcript"] in ("", call.text)
            assert item.first_start <= call.start <= item.last_start
            assert event["usage"]["seconds"] == math.ceil((call.end - call.start) / RATE)
            words = event["transcript"].split()
            assert item.deltas.split()[: len(words)] == words

    def heard_until(self, item: Item) -> tuple[int, int]:
        """End of the sound whose words the client has."""
        calls = [call for call in self.engine.calls if item.first_start <= call.start <= item.last_start]
        if item.text_of:
            return item.text_of.start, item.text_of.end
        start, words = calls[0].start if calls else item.first_start, len(item.deltas.split())
        if not words:
            return start, start
        (end,) = {call.end for call in calls if call.outcome == "answered" and call.words == words}
        return start, end

    def owed_samples(self, item: Item) -> int:
        """Samples that the client owes, by `docs/live-sessions.md`."""
        start, end = self.heard_until(item)
        calls = [call for call in self.engine.calls if item.first_start <= call.start <= item.last_start]
        fault = next((fault for fault in FAULTS.values() if fault.code == item.error), None)
        has_crashed = self.code == 1011 and item.events[-1] != "F" and not item.is_cleared
        if item.text_of or has_crashed or (fault and fault.status >= 500 and fault not in TIME_LIMITS):
            return end - start
        # The call that a time limit ended has failed; a draft that the turn's end has ended has not.
        failed = self.engine.calls[item.calls_before :] if fault in TIME_LIMITS else []
        begun = [call.end for call in calls if call.outcome != "failed" and call not in failed]
        return max([end, *begun]) - start


class SessionMachine(RuleBasedStateMachine):
    """Random clients, keys, engines and servers."""

    @initialize(
        limit=st.sampled_from([None, 60, 120]),
        plan=st.sampled_from(["pro", "free"]),
        is_secret=st.booleans(),
        leaves=st.booleans(),
    )
    def start(self, limit: int | None, plan: str, is_secret: bool, leaves: bool) -> None:
        self.folder = TemporaryDirectory(prefix="live")
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.numbers = iter(range(10**9))
        self.has_limit, self.revoked_s = limit is not None, math.inf
        self.client: Client | None = None
        self.leaves = leaves
        self.run(self._start(limit, plan, is_secret))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(3600):
                return await work

        return self.runner.run(bounded())

    async def _start(self, limit: int | None, plan: str, is_secret: bool) -> None:
        home, clock = Path(self.folder.name), cast(Any, LoopTime())
        self.database = InlineDatabase()
        state = State(cast(Any, self.database), open_secrets(home, is_shared=False), Rates(), open_blobs(home), clock)
        state.accounts._monotonic = clock.monotonic
        service = Service(CATALOG, local_engines(CATALOG), state)
        self.api = Api(service, client_of(service))
        await self.api.organisation("small", plan)
        if limit:
            price = self.api.service.catalog.transcription[MODEL].cost_micro_eur(audio_seconds=limit)
            await self.api.limit(price, org="small")
        self.key = self.opener = await self.api.key(*Scope, org="small")
        self.caller = await self.api.caller(self.key)
        if is_secret:
            body = {"session": {"type": "transcription"}, "expires_after": {"anchor": "created_at", "seconds": 60}}
            reply = await self.api.send("POST", "/v1/realtime/client_secrets", self.key, json=body)
            self.opener, self.expires_s = reply.json()["value"], reply.json()["expires_at"] - NOW_S
        self.is_secret = is_secret
        self.lines = 0
        self.heard = self._seconds()

    def _seconds(self) -> Sequence[int]:
        totals = self.api.service.metrics.totals
        return [round(RATE * totals[LIVE_SECONDS, (kind,)]) for kind in ("heard", "unheard", "silence")]

    @property
    def now_s(self) -> float:
        return self.runner.get_loop().time()

    def has_session(self) -> bool:
        return self.client is not None

    @property
    def socket(self) -> Client:
        assert self.client
        return self.client

    # --- the client ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.has_session())
    @rule(detection=st.sampled_from(TURN_DETECTIONS))
    def open(self, detection: Any) -> None:
        self.run(self._open(detection))

    async def _open(self, detection: Any) -> None:
        listener = NumberedListener()
        self.api.service.live.listener = cast(Any, listener)
        engine = transcriber_of(self.api).adapter = NumberedTranscriber(listener)
        client = self.client = Client(listener, engine)
        client.connect(self.api, self.opener)
        await until(lambda: client.status or client.serving.done())
        if client.status != 101:
            self.client, self.database.is_down = None, False
            await client.serving
            ended = self.now_s > self.revoked_s + 5 or (self.is_secret and self.now_s >= self.expires_s)
            assert client.status in ((401,) if ended else (401, 402, 429, 503))
            return
        assert not (self.is_secret and self.now_s > self.expires_s + 1)
        await self._settings(format={"type": "audio/pcm", "rate": RATE}, turn_detection=detection)

    async def _settings(self, **of_input: Any) -> None:
        await self._ask("session.update", session={"type": "transcription", "audio": {"input": of_input}})

    async def _ask(self, type: str, *, waits: bool = True, **members: Any) -> tuple[str, list[Event], Event]:
        """Sends an event: its id, the events that came meanwhile, and the error that answers it."""
        id = f"mine-{next(self.numbers)}"
        message = json.dumps({"type": type, "event_id": id, **members})
        events = await self.socket.ask(message, waits=waits)
        return id, events, self.socket.answers.get(id, {})

    def _is_answered(self, events: list[Event], error: Event, *types: str) -> bool:
        """One of these events came, or an error; a session that ends says no more than that."""
        return self.socket.is_over or bool(error) != any(event["type"] in types for event in events)

    @precondition(has_session)
    @rule(samples=st.integers(1, 100 * FRAME) | st.sampled_from([2 * RATE, 3 * RATE, 9 * RATE]))
    def speak(self, samples: int) -> None:
        self.run(self._append(True, samples))

    @precondition(has_session)
    @rule(samples=st.integers(1, 60 * FRAME))
    def pause(self, samples: int) -> None:
        self.run(self._append(False, samples))

    @precondition(has_session)
    @rule(is_speech=st.booleans(), samples=st.integers(1, 60 * FRAME), delay_s=st.sampled_from([0.0, 0.2, 35.0]))
    def append_to_a_listener(self, is_speech: bool, samples: int, delay_s: float) -> None:
        """That dies, or takes long, for which nothing here waits."""
        self.run(self._append(is_speech, samples, delay_s, None if delay_s else ListenerFailed))

    async def _append(
        self, is_speech: bool, samples: int, delay_s: float = 0.0, failure: type[Exception] | None = None
    ) -> None:
        client = self.socket
        await client.ask('{"type": "parlance.session.ledger"}')  # what was not waited for has ended
        at = client.received
        if at + samples > MOST_S * RATE or client.serving.done():
            return
        client.listener.delay_s, client.listener.failure = delay_s, failure
        sound = (SPEECH if is_speech else SILENCE)[2 * at : 2 * (at + samples)]
        id, _, error = await self._ask(
            "input_audio_buffer.append", waits=not delay_s, audio=base64.b64encode(sound).decode()
        )
        client.sent[id] = is_speech, samples
        if failure:
            client.boundaries.add(at)
        if not delay_s and not client.is_over:
            assert client.received == at + (0 if error else samples)

    @precondition(has_session)
    @rule()
    def commit(self) -> None:
        client = self.socket
        _, events, error = self.run(self._ask("input_audio_buffer.commit"))
        assert self._is_answered(events, error, "input_audio_buffer.committed")
        if client.detection is None and error and error["code"] == "input_audio_buffer_commit_empty":
            assert client.received - client.boundary < RATE // 10
        if any(event["type"] == "input_audio_buffer.committed" for event in events) and client.detection is None:
            assert client.received >= RATE // 10

    @precondition(has_session)
    @rule()
    def clear(self) -> None:
        _, events, error = self.run(self._ask("input_audio_buffer.clear"))
        assert self._is_answered(events, error, "input_audio_buffer.cleared")

    @precondition(has_session)
    @rule(detection=st.sampled_from(TURN_DETECTIONS), language=st.sampled_from(["de", "en", "klingon"]))
    def update(self, detection: Any, language: str) -> None:
        settings = {"turn_detection": detection, "transcription": {"model": MODEL, "language": language}}
        about = {"type": "transcription", "audio": {"input": settings}}
        _, events, error = self.run(self._ask("session.update", session=about))
        assert self._is_answered(events, error, "session.updated")
        assert error or language != "klingon" or self.socket.is_over

    @precondition(has_session)
    @rule(message=st.sampled_from(MALFORMED))
    def send_malformed(self, message: str | bytes) -> None:
        events = self.run(self.socket.ask(message))
        assert self._is_answered(events, {}, "error")

    # --- the others ---------------------------------------------------------------------------------------------------

    @precondition(has_session)
    @rule(
        answer=st.sampled_from([None, None, None, UPSTREAM_ERROR, AUDIO_UNREADABLE, BUSY, ZeroDivisionError]),
        is_silent=st.sampled_from([False, False, False, False, True]),
        delay_s=st.sampled_from([0.0, 0.3, 1.5, 1.5, 8.0, 10_000.0]),
    )
    def change_engine(self, answer: Callable[..., Exception] | None, is_silent: bool, delay_s: float) -> None:
        engine = self.socket.engine
        engine.answer = (lambda: answer("a reason")) if answer else None
        engine.is_silent, engine.delay_s = is_silent, delay_s

    @precondition(lambda self: self.has_session() and not self.socket.is_over and not self.socket.is_ending)
    @rule(
        draft_s=st.sampled_from([0.0, 1000.0]),
        has_replica=st.sampled_from([True, True, False]),
        answer=st.sampled_from([AUDIO_UNREADABLE, UPSTREAM_ERROR]),
        end=st.sampled_from(["commit", "clear", "silence", "leave", "crash"]),
    )
    def end_a_turn_after_a_draft(
        self, draft_s: float, has_replica: bool, answer: Callable[..., Exception], end: str
    ) -> None:
        """A slow draft is given up, and what it had begun stays owed; then the engine fails."""
        self.change_server(has_replica, True)
        self.change_engine(None, False, draft_s)
        self.run(self._append(True, 2 * RATE))
        self.wait(0.05)
        self.run(self._append(True, 2 * FRAME))
        self.change_engine(answer, False, 0.0)
        match end:
            case "commit":
                self.commit()
                self.wait(10.0)  # it is asked again
            case "clear":
                self.clear()
            case "silence":
                self.run(self._append(False, RATE))
            case "leave":
                self.run(self._leave())
            case "crash":
                self.socket.may_crash = True
                self.run(self._append(True, FRAME, failure=ZeroDivisionError))

    @precondition(has_session)
    @rule(has_replica=st.booleans(), has_database=st.booleans())
    def change_server(self, has_replica: bool, has_database: bool) -> None:
        handle = transcriber_of(self.api).handle
        (handle.may_start.set if has_replica else handle.sleep)()
        self.database.is_down = not has_database

    @precondition(has_session)
    @rule(seconds=st.sampled_from([0.05, 0.3, 1.0, 4.0, 20.0, 70.0, 290.0]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @precondition(lambda self: self.has_session() and len(self.socket.events) > 12)
    @rule(what=st.sampled_from(["end", "leave", "read no more", "drain", "revoke", "spend", "an hour passes"]))
    def stop(self, what: str) -> None:
        self.run(self._stop(what))

    async def _stop(self, what: str) -> None:
        match what:
            case "end":
                await self._ask("parlance.session.end")
                self.socket.is_ending = True
            case "leave":
                self._hang_up()
            case "read no more":
                self.socket.reads.clear()
            case "drain":
                self.api.service.live.drain()
                await settled()
            case "revoke" if not self.database.is_down:
                await revoke(self.api, self.key)
                self.revoked_s = min(self.revoked_s, self.now_s)
            case "spend" if not self.database.is_down:
                await self.api.limit(0, org="small")
                self.has_limit = False  # which is below what was spent
            case "an hour passes":
                await asyncio.sleep(3590)

    def _hang_up(self) -> None:
        self.socket.inbox.put_nowait({"type": "websocket.disconnect", "code": 1006})

    async def _leave(self) -> None:
        self._hang_up()
        await self.socket.serving

    # --- what holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def books_are_right(self) -> None:
        if getattr(self, "client", None):
            self.run(self._look())

    async def _look(self) -> None:
        client = self.socket
        if self.database.is_down:
            self.revoked_s = max(self.revoked_s, self.now_s) if self.revoked_s < math.inf else math.inf
        is_late = self.now_s > self.revoked_s + 10
        assert not is_late or client.is_over
        if not client.serving.done():
            return
        assert client.serving.exception() is None
        self.client = None
        await self._account(client)

    async def _account(self, client: Client) -> None:
        """The books of a session that is over."""
        if client.failure:
            raise client.failure
        assert client.code != 1011 or client.may_crash
        self.database.is_down = False
        await asyncio.sleep(70)  # what the database has missed is written
        before, self.heard = self.heard, self._seconds()
        heard, unheard, silence = (after - earlier for after, earlier in zip(self.heard, before, strict=True))
        assert heard + unheard + silence == client.received, (heard, unheard, silence, client.received)
        lines = (await self.api.usage())[self.lines :]
        self.lines += len(lines)
        billed_s = sum(line.quantity for line in lines)
        assert len(lines) == bool(billed_s)
        if client.reads.is_set():
            assert heard == sum(end - start for start, end in map(client.heard_until, client.items.values()))
            owed = [client.owed_samples(item) for item in client.items.values()]
            assert billed_s == sum(math.ceil(samples / RATE) for samples in owed), (owed, client)
        if client.ledger:
            self._check_last(client, client.ledger, billed_s)
        if self.has_limit:
            spend = (await self.api.state.accounts.describe(self.caller))["spend"]["organisation"]
            assert spend["left_micro_eur"] is None or spend["left_micro_eur"] >= 0

    def _check_last(self, client: Client, ledger: Event, billed_s: int) -> None:
        assert (client.code, ledger["pending_s"], ledger["billed_s"]) == (1000, 0, billed_s)
        assert not [item for item in client.items.values() if item.events[-1] not in "KF" and not item.is_cleared]
        accepted = [(is_speech, count) for id, (is_speech, count) in client.sent.items() if id not in client.answers]
        assert sum(count for _, count in accepted) == client.received
        spans = [span for span in map(client.heard_until, client.items.values()) if span[0] < span[1]]
        pieces = [(piece["start_ms"] * 16, piece["end_ms"] * 16) for piece in ledger["unheard"]]
        assert all(end <= start + 15 for (_, end), (start, _) in pairwise(sorted(spans + pieces)))
        # Speech of less than two whole frames is none; a whole one can have begun before, and one be under way.
        at, rest = 0, 0
        covered = sorted((start - 16, end + 16) for start, end in spans + pieces)
        for is_speech, count in accepted:
            for position in range(at, at + count, 64):
                is_lost = is_speech and not any(start <= position < end for start, end in covered)
                rest = rest + 64 if is_lost and not any(at <= bound < at + 64 for bound in client.boundaries) else 0
                assert rest < 4 * FRAME, f"speech at {position} is in no turn"
            at += count

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        try:
            self.run(self._finish())
        finally:
            self.runner.close()
            self.folder.cleanup()

    async def _finish(self) -> None:
        """The client leaves, or everything is well again and the session ends; nothing is left of it."""
        self.database.is_down = False
        if (client := self.client) and self.leaves:
            await self._leave()
            await self._account(client)
        elif client:
            client.reads.set()
            client.engine.answer, client.engine.delay_s = None, 0.0
            transcriber_of(self.api).handle.may_start.set()
            await client.ask('{"type": "parlance.session.end"}', waits=False)
            await client.serving
            await self._account(client)
        live, state = self.api.service.live, self.api.state
        assert (census(self.api.service), state.rates.open_streams) == ({}, 0)
        assert getattr(live.listener, "open", 0) == 0
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert not names & {"transcriber", "draft", "end of session", "key of session", "notice"}
        await state.close()


def test_whatever_happens_to_a_session_its_books_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (notifier, session, reservation):
        monkeypatch.setattr(module, "time", LoopTime())
    monkeypatch.setattr("state.rates.time", LoopTime())
    # What a state does beside its requests would take longer than all else in an hour.
    monkeypatch.setattr("state.open.MARK_S", 20.0)
    monkeypatch.setattr("state.open.SWEEP_S", 1e6)
    some = settings(
        max_examples=EXAMPLES, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(SessionMachine, settings=some)
