"""Live sound of clients, resampled and searched for speech by one child process for all sessions of this one.

    stream = listener.stream({"type": "audio/pcm", "rate": 24000}, "org-1")
    samples, probabilities = await stream.listen(sound)          # 16-bit at 16 kHz; of frames of 32 ms
    await stream.end()

    await listener.speech_s(samples, 24_000)                 # seconds of a whole recording that are speech

The child starts with the first sound and ends LINGER_S after the last stream. If it dies, the next sound starts
another, and nothing of that sound is lost. Owners take turns, a piece of PIECE_S each. This module loads neither numpy
nor the network: an ingress stays light, and its event loop is never held up.
"""

from __future__ import annotations

import asyncio
import json
import struct
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from concurrency.child import command, settings
from concurrency.semaphore import FairSemaphore

__all__ = ["FRAME", "RATE", "Listener", "ListenerFailed", "SoundStream"]

RATE = 16_000
FRAME = 512
"""Samples that one probability is of."""

SPEECH = 0.5
"""Probability from which on a frame of a recording is speech."""

PIECE_S = 0.5
"""Seconds of sound that the child takes at once. Between two pieces of one session it takes those of others."""

AT_ONCE = 2
"""Pieces at the child: while it works on one, the next has come."""

LINGER_S = 60.0
PROGRAM = Path(__file__).with_name("listening.py")
WEIGHTS = "silero_vad_v6.onnx"
"""Silero's network (MIT), in the wheel of faster-whisper."""

_REQUEST, _REPLY = struct.Struct("<IBI"), struct.Struct("<II")
_OPEN, _SOUND, _END = range(3)

Frames = tuple[bytes, Sequence[float]]
"""Samples, and probabilities of speech."""


class ListenerFailed(RuntimeError):
    """The child cannot be started, or died twice of the same sound."""


class Listener:
    """The child of one process, and its streams.

    Attributes:
        turns: of the owners of streams.
    """

    def __init__(self) -> None:
        self.turns = FairSemaphore(AT_ONCE)
        self._child: _Child | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Lock()
        self._numbers = count(1)
        self._streams = 0
        self._linger: asyncio.TimerHandle | None = None

    def stream(self, format: Mapping[str, Any], owner: str = "") -> SoundStream:
        """A new stream of this format. `end` it."""
        self._streams += 1
        if self._linger:
            self._linger.cancel()
        piece_bytes = int(PIECE_S * format.get("rate", 8_000)) * (2 if format["type"] == "audio/pcm" else 1)
        return SoundStream(self, owner, next(self._numbers), json.dumps(dict(format)).encode(), piece_bytes)

    async def speech_s(self, samples: bytes, rate: int, owner: str = "") -> float:
        """Seconds of 16-bit samples at `rate` Hz that are speech. Raises ListenerFailed."""
        stream = self.stream({"type": "audio/pcm", "rate": rate}, owner)
        try:
            _, probabilities = await stream.listen(samples)
        finally:
            await stream.end()
        return sum(probability >= SPEECH for probability in probabilities) * FRAME / RATE

    def forget(self) -> None:
        """A stream has ended."""
        self._streams -= 1
        if not self._streams and self._child:
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, self._retire)

    def _retire(self) -> None:
        if self._child:
            self.discard(self._child)

    async def close(self) -> None:
        """Ends the child, and returns once it and those before it have ended."""
        self._retire()
        if self._ending:
            await asyncio.wait(self._ending)

    def discard(self, child: _Child) -> None:
        """Records that the child has died, which may not be known yet."""
        child.kill()
        self._ending.add(child.reading)
        child.reading.add_done_callback(self._ending.discard)
        if self._child is child:
            self._child = None

    async def child(self) -> _Child:
        """The running child, or a new one."""
        async with self._starting:
            if self._child is None or not self._child.is_alive:
                self._retire()
                self._child = await _Child.start()
            return self._child


class SoundStream:
    """One session's sound. One task speaks with it at a time."""

    def __init__(self, listener: Listener, owner: str, number: int, format: bytes, piece_bytes: int) -> None:
        self._listener, self._owner, self._number = listener, owner, number
        self._format, self._piece_bytes = format, piece_bytes
        self._opened_at: _Child | None = None
        self._inside = b""
        """Sound of which the resampler has not given the samples yet; the next child gets it again."""
        self._unsent = b""
        """The part of it that the child at which the stream is open has not got."""
        self._given = 0.0
        """Bytes of `_inside` that were given, less than one sample."""

    async def listen(self, sound: bytes) -> Frames:
        """Samples and probabilities that this sound completes. Raises ListenerFailed."""
        starts = range(0, len(sound), self._piece_bytes)
        answers = [await self._ask(_SOUND, sound[start : start + self._piece_bytes]) for start in starts]
        return b"".join(samples for samples, _ in answers), [speech for _, frames in answers for speech in frames]

    async def end(self) -> Frames:
        """The last samples. The stream is gone, whatever happens."""
        try:
            with suppress(ListenerFailed):
                if self._inside or (self._opened_at and self._opened_at.is_alive):
                    return await self._ask(_END, b"")
            return b"", ()
        finally:
            if self._opened_at and self._opened_at.is_alive:
                self._opened_at.send(self._number, _END, b"")  # this wait was cancelled before its turn came
            self._listener.forget()

    async def _ask(self, kind: int, payload: bytes) -> Frames:
        async with self._listener.turns.of(self._owner):
            for _ in range(2):
                child = await self._listener.child()
                try:
                    if child is not self._opened_at:
                        self._opened_at = child  # first, so that `end` closes it there if this wait is cancelled
                        self._unsent = self._inside
                        await child.ask(self._number, _OPEN, self._format)
                    sound, self._unsent = self._unsent + payload, b""
                    self._opened_at = None if kind == _END else child
                    samples, probabilities = await child.ask(self._number, kind, sound)
                except OSError:
                    self._listener.discard(child)
                else:
                    self._given += len(samples) * self._piece_bytes / (2 * RATE * PIECE_S)
                    whole = int(self._given) // 2 * 2
                    self._given -= whole
                    self._inside = (self._inside + payload)[whole:]
                    return samples, probabilities
        raise ListenerFailed("the process that listens to live sound does not run")


class _Child:
    """The process. Requests are answered in the order in which they were written.

    Attributes:
        reading: task that is done once the process is gone.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._stdin: Any = process.stdin
        self._waiting: deque[asyncio.Future[Frames]] = deque()
        self.reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls) -> _Child:
        """Raises ListenerFailed where the network is not installed."""
        spec = find_spec("faster_whisper")
        if spec is None or spec.origin is None:
            raise ListenerFailed("live sound needs the package `faster-whisper`, which holds the network for speech")
        process = await asyncio.create_subprocess_exec(
            *command(PROGRAM, str(Path(spec.origin).with_name("assets") / WEIGHTS), nice=1),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # A session, because uvloop knows no process groups.
            **settings({"OMP_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}) | {"start_new_session": True},
        )
        return cls(process)

    @property
    def is_alive(self) -> bool:
        """Says if it can answer. Its pipes close some milliseconds before its exit is known."""
        return self._process.returncode is None and not self._stdin.is_closing()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def ask(self, number: int, kind: int, payload: bytes) -> Frames:
        """The reply to one request. Raises OSError where the child is gone."""
        if not self.is_alive:
            raise BrokenPipeError
        reply = self.send(number, kind, payload)
        await self._stdin.drain()
        return await reply

    def send(self, number: int, kind: int, payload: bytes) -> asyncio.Future[Frames]:
        """Writes one request, and returns its reply."""
        reply: asyncio.Future[Frames] = asyncio.get_running_loop().create_future()
        reply.add_done_callback(lambda reply: reply.cancelled() or reply.exception())  # where `drain` has raised before
        self._waiting.append(reply)
        self._stdin.write(_REQUEST.pack(number, kind, len(payload)) + payload)
        return reply

    async def _read(self) -> None:
        stdout: Any = self._process.stdout
        try:
            while True:
                samples, probabilities = _REPLY.unpack(await stdout.readexactly(_REPLY.size))
                content = await stdout.readexactly(samples + probabilities)
                reply = self._waiting.popleft()
                if not reply.done():  # its session may have left
                    reply.set_result((content[:samples], array("f", content[samples:])))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            for reply in self._waiting:
                if not reply.done():
                    reply.set_exception(BrokenPipeError())
            self.kill()
            self._stdin.close()
            await self._process.wait()
