"""Live sound of clients, resampled and searched for speech by one child process for all sessions of this one.

    stream = listener.stream({"type": "audio/pcm", "rate": 24000})
    samples, probabilities = await stream.listen(sound)          # 16-bit at 16 kHz; of frames of 32 ms
    await stream.end()

The child starts with the first sound and ends LINGER_S after the last stream. If it dies, the next sound starts
another, and nothing of that sound is lost. This module loads neither numpy nor the network: an ingress stays light, and
its event loop is never held up.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

__all__ = ["FRAME", "RATE", "Listener", "ListenerFailed", "SoundStream"]

RATE = 16_000
FRAME = 512
"""Samples that one probability is of."""

PIECE_S = 0.5
"""Of sound that the child hears at once. Between two pieces of one session it hears those of others."""

LINGER_S = 60.0
PROGRAM = Path(__file__).with_name("listening.py")
WEIGHTS = "silero_vad_v6.onnx"
"""Silero's network (MIT), in the wheel of faster-whisper."""

_REQUEST, _REPLY = struct.Struct("<IBI"), struct.Struct("<II")
_OPEN, _SOUND, _END = range(3)
_VARIABLES = ("LD_LIBRARY_PATH",)

Frames = tuple[bytes, Sequence[float]]
"""Samples, and probabilities of speech."""


class ListenerFailed(RuntimeError):
    """The child cannot be started, or died twice of the same sound."""


class Listener:
    """The child of one process, and the streams that it hears."""

    def __init__(self) -> None:
        self._child: _Child | None = None
        self._starting: asyncio.Lock | None = None
        self._numbers = count(1)
        self._streams = 0
        self._linger: asyncio.TimerHandle | None = None

    def stream(self, format: Mapping[str, Any]) -> SoundStream:
        """A new stream of this format. `end` it."""
        self._streams += 1
        if self._linger:
            self._linger.cancel()
            self._linger = None
        sample_bytes = 2 if format["type"] == "audio/pcm" else 1
        piece_bytes = int(PIECE_S * format.get("rate", 8_000)) * sample_bytes
        return SoundStream(self, next(self._numbers), json.dumps(dict(format)).encode(), piece_bytes)

    def forget(self) -> None:
        """A stream has ended."""
        self._streams -= 1
        if not self._streams and self._child:
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, self._retire)

    def _retire(self) -> None:
        if self._child:
            self.discard(self._child)

    async def close(self) -> None:
        """Ends the child, and returns once it has ended."""
        if child := self._child:
            self.discard(child)
            await child.ended()

    def discard(self, child: _Child) -> None:
        """That child has died; it may not be known yet."""
        child.kill()
        if self._child is child:
            self._child = None

    async def child(self) -> _Child:
        """The child that runs, or a new one."""
        self._starting = self._starting or asyncio.Lock()
        async with self._starting:
            if self._child is None or not self._child.is_alive:
                self._child = await _Child.start()
            return self._child


class SoundStream:
    """One session's sound. One task speaks with it at a time."""

    def __init__(self, listener: Listener, number: int, format: bytes, piece_bytes: int) -> None:
        self._listener, self._number, self._format, self._piece_bytes = listener, number, format, piece_bytes
        self._opened_at: _Child | None = None

    async def listen(self, sound: bytes) -> Frames:
        """Samples and probabilities that this sound completes. Raises ListenerFailed."""
        starts = range(0, len(sound), self._piece_bytes)
        answers = [await self._ask(_SOUND, sound[start : start + self._piece_bytes]) for start in starts]
        return b"".join(samples for samples, _ in answers), [speech for _, frames in answers for speech in frames]

    async def end(self) -> Frames:
        """The last samples. The stream is gone, whatever happens."""
        try:
            if self._opened_at is None or not self._opened_at.is_alive:
                return b"", ()
            return await self._ask(_END, b"")
        except ListenerFailed:
            return b"", ()
        finally:
            self._listener.forget()

    async def _ask(self, kind: int, payload: bytes) -> Frames:
        for _ in range(2):
            child = await self._listener.child()
            try:
                if child is not self._opened_at:
                    self._opened_at = child  # first, so that `end` closes it there, also where this wait is cancelled
                    await child.ask(self._number, _OPEN, self._format)
                return await child.ask(self._number, kind, payload)
            except OSError:
                self._listener.discard(child)
        raise ListenerFailed("the process that listens to live sound does not run")


class _Child:
    """The process. Requests are answered in the order in which they were written."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: deque[asyncio.Future[Frames]] = deque()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls) -> _Child:
        """Raises ListenerFailed where the network is not installed."""
        spec = find_spec("faster_whisper")
        if spec is None or spec.origin is None:
            raise ListenerFailed("live sound needs the package `faster-whisper`, which holds the network for speech")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(PROGRAM),
            str(Path(spec.origin).with_name("assets") / WEIGHTS),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={name: os.environ[name] for name in _VARIABLES if name in os.environ} | {"OMP_NUM_THREADS": "1"},
            cwd="/",
            start_new_session=True,
        )
        return cls(process)

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None and not self._reading.done()

    async def ended(self) -> None:
        """Returns once the process is gone."""
        await asyncio.wait({self._reading})

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def ask(self, number: int, kind: int, payload: bytes) -> Frames:
        """The reply to one request. Raises OSError where the child is gone."""
        stdin = self._process.stdin
        assert stdin
        if not self.is_alive:
            raise BrokenPipeError
        reply: asyncio.Future[Frames] = asyncio.get_running_loop().create_future()
        self._waiting.append(reply)
        stdin.write(_REQUEST.pack(number, kind, len(payload)) + payload)
        await stdin.drain()
        return await reply

    async def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout
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
            if self._process.stdin:
                self._process.stdin.close()
            await self._process.wait()
