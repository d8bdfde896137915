"""Clients of one organisation that ask all the time while something is broken, and what each of them saw.

Each request has a connection of its own, so that both ingress replicas and every new HAProxy are met.
"""

import asyncio
import base64
import io
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import httpx
import numpy as np
import soundfile
import soxr
from websockets.exceptions import WebSocketException

from benchmarks.attacks.bombs import encoded
from benchmarks.attacks.sockets import session
from benchmarks.attacks.target import Target, authorized, code_of
from contract.errors import FAULTS
from tests.waiting import until

REPLY_S = 150
AGAIN_S = 0.2
"""After an answer that was none."""
PROBES = 6
"""Calls that are answered together where both ingress replicas work."""
EVENTS, PAUSE_S = 30, 0.1
"""Of a stream."""
STREAM_MICRO_EUR, CALL_MICRO_EUR = 7 + 2 * EVENTS, 13
RATE, PIECE_S = 24_000, 0.1
CLOSED = "closed"
"""Begins what a client saw whose connection broke."""
TABLE = {f"{row.status} {row.code}" for row in FAULTS.values()}
WHOLE = {"200", "200 [DONE]", "every sample"}


@dataclass(frozen=True)
class Seen:
    """One request and its end.

    Attributes:
        kind: of `KINDS`.
        answer: status and code, or in words; of WHOLE where nothing is missing.
        request_id: empty where none came.
        price: micro-EUR that the answer costs; None where it has no fixed price.
        idempotency_key: with which it can be repeated.
    """

    kind: str
    answer: str
    request_id: str = ""
    price: int | None = None
    idempotency_key: str = ""


class Crowd:
    """The clients of one organisation. `seen` are their requests that have ended."""

    def __init__(self, url: str, key: str) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        headers = authorized(key)
        self.http = httpx.AsyncClient(base_url=url, headers=headers, timeout=REPLY_S, limits=limits)
        self.target = Target(url, key, "", is_short=True, client=self.http)
        self.seen: list[Seen] = []
        self._over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, kinds: Iterable[str]) -> None:
        """One client for each of `kinds`; a kind that is named twice has two."""
        self._tasks += [asyncio.create_task(self._insist(kind)) for kind in kinds]

    async def end(self) -> None:
        """Lets each finish its request."""
        self._over.set()
        await asyncio.gather(*self._tasks)

    async def _insist(self, kind: str) -> None:
        while not self._over.is_set():
            seen = await self.ask(kind)
            self.seen.append(seen)
            await asyncio.sleep(0 if seen.answer in WHOLE else AGAIN_S)

    async def ask(self, kind: str) -> Seen:
        """One request of a kind."""
        try:
            return await KINDS[kind](self)
        except (httpx.TransportError, WebSocketException, OSError) as error:
            return Seen(kind, f"{CLOSED}: {type(error).__name__}")

    async def is_served(self, kinds: Iterable[str]) -> bool:
        """Whether each of `kinds` is answered as ever, and short calls by every ingress."""
        asked = [self.ask(kind) for kind in {*kinds} - {"call", "stream"}]
        seen = await asyncio.gather(*asked, *(self.ask("short call") for _ in range(PROBES)))
        return {each.answer for each in seen} <= WHOLE

    async def until_served(self, kinds: Iterable[str], within_s: float) -> float | None:
        """The moment at which all have been answered; None if that is not `within_s`."""
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s:
            if await self.is_served(kinds):
                return time.monotonic()
            await asyncio.sleep(AGAIN_S)
        return None

    async def chat(self, text: str, model: str = "obedient", **options: Any) -> httpx.Response:
        """One completion."""
        body = {"model": model, "messages": [{"role": "user", "content": text}]} | options.pop("json", {})
        return await self.http.post("/v1/chat/completions", json=body, **options)


def answer_of(reply: httpx.Response) -> str:
    """Status and code."""
    return f"{reply.status_code} {code_of(reply)}".strip()


async def call(crowd: Crowd, text: str = "hold 0.5", model: str = "obedient") -> Seen:
    """A completion in one piece."""
    key = secrets.token_hex(8)
    reply = await crowd.chat(text, model, headers={"idempotency-key": key})
    is_well = reply.status_code == 200
    price = CALL_MICRO_EUR if is_well else 0
    return Seen("call", answer_of(reply), reply.headers.get("x-request-id", ""), price, key if is_well else "")


async def stream(crowd: Crowd, events: int = EVENTS, pause_s: float = PAUSE_S) -> Seen:
    """A completion in pieces."""
    messages = [{"role": "user", "content": f"stream {events} {pause_s}"}]
    body = {"model": "obedient", "messages": messages, "stream": True}
    async with crowd.http.stream("POST", "/v1/chat/completions", json=body) as reply:
        request_id, last = reply.headers.get("x-request-id", ""), ""
        if reply.status_code != 200:
            await reply.aread()
            return Seen("stream", answer_of(reply), request_id, 0)
        async for line in reply.aiter_lines():
            last = line.removeprefix("data: ") if line.startswith("data: ") else last
    if last == "[DONE]":
        return Seen("stream", "200 [DONE]", request_id, STREAM_MICRO_EUR)
    with suppress(ValueError, KeyError):
        code = json.loads(last)["error"]["code"]
        (status,) = {row.status for row in FAULTS.values() if row.code == code}
        return Seen("stream", f"{status} {code}", request_id, 0)
    return Seen("stream", f"{CLOSED}: without an error", request_id)


async def start(crowd: Crowd) -> Seen:
    """A call of an engine that is at zero."""

    with suppress(ValueError, KeyError, TimeoutError):
        await until(lambda: is_cold(crowd))
    return replace(await call(crowd, "say hi", "cold"), kind="start")


async def is_cold(crowd: Crowd) -> bool:
    """Says if that engine is at zero."""
    return not (await crowd.http.get("/healthz")).json()["replicas"].get("chat-cold")


async def recording(crowd: Crowd) -> Seen:
    """A recording whose decoding takes a while."""
    reply = await crowd.http.post(
        "/v1/audio/transcriptions", files={"file": ("a.flac", long_silence())}, data={"language": "en"}
    )
    return Seen("recording", answer_of(reply), reply.headers.get("x-request-id", ""))


@cache
def long_silence() -> bytes:
    """Of ten minutes, in a few kilobytes."""
    return encoded("flac", "flac", np.zeros(16_000 * 600, np.float32))


async def live(crowd: Crowd) -> Seen:
    """A live session of one sentence at the pace of speech."""
    body = {"input": "Good morning.", "language": "en", "response_format": "wav"}
    spoken = await crowd.http.post("/v1/audio/speech", json=body)
    if spoken.status_code != 200:
        return Seen("live", answer_of(spoken))
    samples, rate = soundfile.read(io.BytesIO(spoken.content), dtype="float32")
    words = (soxr.resample(samples, rate, RATE) * 32_767).astype("<i2").tobytes()
    sound = bytes(RATE) + words + bytes(RATE)
    async with session(crowd.target) as socket:
        size = int(PIECE_S * RATE) * 2
        for at in range(0, len(sound), size):
            audio = base64.b64encode(sound[at : at + size]).decode()
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            await asyncio.sleep(PIECE_S)
        await socket.send(json.dumps({"type": "parlance.session.end"}))
        async with asyncio.timeout(REPLY_S):
            events = [json.loads(text) async for text in socket]
    ledger = events[-1].get("ledger", {})
    missing_s = abs(ledger.get("received_s", 0) - len(sound) / 2 / RATE) + ledger.get("unheard_s", 0)
    return Seen("live", "every sample" if missing_s < PIECE_S / 10 else f"{missing_s:.1f} s unheard")


KINDS: dict[str, Callable[[Crowd], Awaitable[Seen]]] = {
    "call": call,
    "short call": partial(call, text="say hi"),
    "stream": stream,
    "start": start,
    "recording": recording,
    "live": live,
}
