"""Decodes a stranger's audio in a process of its own, which holds nothing worth having and can do nothing else.

    decode(data, sample_rate, max_seconds, owner) -> Sound
      |- NotAudio     no sound in a format that is known; also a file that needed too much time or memory
      |- TooLong      more sound than was requested
      `- Crowded      too many files wait

A flaw in a codec then costs its finder a process that was to end anyway. `audio.confinement` says what that
process cannot do; it gets no environment either. This module loads neither codecs nor models.
"""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import SpooledTemporaryFile
from threading import Lock

from audio.turns import Crowded, Turns

__all__ = ["Crowded", "NotAudio", "Sound", "TooLong", "decode"]

CHILDREN = 2
"""Processes at a time. Who comes later waits for a turn; see `audio.turns`."""

OWNER_WAITING = 8
ALL_WAITING = 64
"""Files that may wait, of one owner and in all."""

IN_MEMORY_BYTES = 4 * 1024**2
"""More samples lie in a file without a name: four hours at 16 kHz are 460 MB, which the kernel may write out."""

PADDING_S = 0.1
"""What a child may give beyond the requested length: codecs add silence to a file at its ends."""

SPEED = 60
"""Seconds of sound that a child must decode in one of processor time: some 400 of Opus are usual, but a file of a few
hundred kilobytes can hold eight channels of silence at 384 kHz."""

PATIENCE = 4
"""Seconds that a child may take for each second of processor time that it may use: it does not run alone."""

REASONS = {
    "unreadable": "it is no audio file, or in no format that is known",
    "no_sound": "there is no sound in it that can be decoded",
    "rate": "its sample rate is out of range",
}
"""A child's verdicts. Its text is not read: after a bad file, nobody knows who writes it."""

_START = (
    "import sys; sys.path[:0] = sys.argv[1:3]; import confinement, decoding;"
    "confinement.confine({cpu_s}); decoding.main({sample_rate}, {max_seconds})"
)

_threads = ThreadPoolExecutor(CHILDREN, thread_name_prefix="sandbox")
_turns = Turns(CHILDREN, OWNER_WAITING, ALL_WAITING)


@dataclass(frozen=True, slots=True)
class Sound:
    """What was in a file.

    Attributes:
        samples: mono, little-endian 16-bit PCM; long ones are mapped from a file that is gone when they are.
        sample_rate: in Hz.
        seconds: its length.
    """

    samples: bytes | mmap
    sample_rate: int
    seconds: float


class NotAudio(ValueError):
    """Nothing that can be heard. Its text says why, after "cannot be decoded:"."""


class TooLong(ValueError):
    """More sound than was requested. Its text is the length, as far as it was looked at.

    Attributes:
        seconds: the sound is longer than this.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"more than {seconds:g} s")
        self.seconds = seconds


async def decode(data: bytes | Path, sample_rate: int, max_seconds: float, owner: str = "") -> Sound:
    """The sound of a file, mixed to mono. Cancelled, it leaves no process behind and no place occupied.

    Args:
        data: the file, or where it lies.
        sample_rate: what the sound is to have, in Hz.
        max_seconds: longest sound that is taken. Memory and time follow it, not what the file says.
        owner: for whom; files of one owner are decoded one after the other, and those of others in between.

    Raises:
        NotAudio, TooLong: as the module says.
        Crowded: too many files wait, of this owner or in all.
    """
    if data == b"":
        raise NotAudio("it is empty")
    async with _turns.of(owner):
        child = _Child()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(_threads, child.decode, data, sample_rate, max_seconds)
        finally:
            child.stop()


class _Child:
    """One process, run by one thread, stopped from anywhere."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_stopped = False
        self._process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """Kills the process, or keeps it from being started."""
        with self._lock:
            self._is_stopped = True
            if self._process:
                self._process.kill()

    def decode(self, data: bytes | Path, sample_rate: int, max_seconds: float) -> Sound:
        cpu_s = 5 + int(max_seconds / SPEED)
        start = _START.format(cpu_s=cpu_s, sample_rate=sample_rate, max_seconds=max_seconds)
        limit_bytes = int((max_seconds + PADDING_S) * sample_rate) * 2
        with _opened(data) as file, self._started(file, start) as process:
            try:
                samples = _read(process, limit_bytes, time.monotonic() + PATIENCE * cpu_s)
            finally:
                self.stop()
            assert process.stderr
            said = process.stderr.read(4096).decode(errors="replace")
        return _judged(said, samples, sample_rate, max_seconds)

    def _started(self, file: int, start: str) -> subprocess.Popen[bytes]:
        spec = find_spec("av")
        if spec is None or spec.origin is None:
            raise RuntimeError("PyAV is not installed: nothing can be decoded")
        paths = [str(Path(__file__).parent), str(Path(spec.origin).parents[1])]
        with self._lock:
            if self._is_stopped:
                raise InterruptedError
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", start, *paths],
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                cwd="/",
                start_new_session=True,
            )
            return self._process


@contextmanager
def _opened(data: bytes | Path) -> Iterator[int]:
    """A descriptor to read the file from, from its beginning."""
    if isinstance(data, Path):
        file = os.open(data, os.O_RDONLY | os.O_CLOEXEC)
    else:
        file = os.memfd_create("sound", os.MFD_CLOEXEC)
    try:
        if isinstance(data, bytes):
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)


def _read(process: subprocess.Popen[bytes], limit_bytes: int, deadline: float) -> bytes | mmap:
    """All that a child gives until it ends. Raises NotAudio if it gives more than it may, or takes too long."""
    assert process.stdout
    size = 0
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    with SpooledTemporaryFile(IN_MEMORY_BYTES, prefix="sound-") as given:
        while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            block = os.read(process.stdout.fileno(), 1 << 20)
            if not block:
                given.seek(0)
                return given.read() if size <= IN_MEMORY_BYTES else mmap(given.fileno(), size, access=ACCESS_READ)
            given.write(block)
            size += len(block)
            if size > limit_bytes:
                break
    raise NotAudio("decoding it took too long")


def _judged(said: str, samples: bytes | mmap, sample_rate: int, max_seconds: float) -> Sound:
    _, ready, verdict = said.partition("ready\n")
    if not ready:
        raise RuntimeError(f"the decoder did not start: {said.strip()[-500:]}")
    match verdict.strip():
        case "sound":
            return Sound(samples, sample_rate, len(samples) / 2 / sample_rate)
        case "too_long":
            raise TooLong(max_seconds)
        case word:
            raise NotAudio(REASONS.get(word, "decoding it failed, or took too much time or memory"))
