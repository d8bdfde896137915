"""Decodes audio files of clients in a process of its own, which holds no secrets and can do nothing else.

    decode(data, sample_rate, max_seconds, owner) -> Sound
      |- NotAudio          no sound in a format that is known; also a file that needed too much time or memory
      |- TooLong           more sound than was requested
      |- QueueFull         too many files wait
      `- SharesExhausted   too much sound lies on the disk

An attacker who finds a flaw in a codec gains a process that was to end anyway. `audio.confinement` says what that
process cannot do; it gets no environment either. This module loads neither codecs nor models.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, Self
from weakref import finalize

from audio.shares import Shares, SharesExhausted
from concurrency.child import Child, ChildError
from concurrency.fairness import QueueFull
from concurrency.semaphore import FairSemaphore

__all__ = ["NotAudio", "QueueFull", "SharesExhausted", "Sound", "TooLong", "decode"]

CHILDREN = 2
"""Processes at a time. Later files wait; owners take turns."""

OWNER_WAITING = 8
ALL_WAITING = 64
"""Files that may wait, of one owner and in all."""

IN_MEMORY_BYTES = 4 * 1024**2
"""More samples lie in a file without a name: four hours at 16 kHz are 460 MB, which the kernel may write out."""

ON_DISK_BYTES = 2 * 1024**3
"""In such files, of all sounds of a process; one owner may have half of it, two recordings of four hours. Hours of
silence come in a few hundred kilobytes, and `/tmp` is memory on many machines."""

NICE = 5
"""A child gives way to paid work and to the event loop of an ingress: it has a quarter of a core that others use."""

PADDING_S = 0.1
"""Seconds that a child may return beyond the requested length: codecs add silence to a file at its ends."""

LEAST_CPU_S = 2
"""Processor time that a child may use after its start: a clip of 30 s takes half a second, at most one."""

SPEED = 60
"""Seconds of sound that it must decode in each second of processor time beyond: some 400 of Opus are usual, but a file
of a few hundred kilobytes can hold eight channels of silence at 384 kHz."""

PATIENCE = 10
"""Seconds that a child may take for each second of processor time that it may use: it shares cores, and gives way."""

REASONS = {
    "unreadable": "the file is not audio, or its format is not supported",
    "no_sound": "the file contains no sound that can be decoded",
    "rate": "the sample rate is out of range",
}
"""A child's verdicts. Its text is not read: after a bad file, the child cannot be trusted."""

PROGRAM = Path(__file__).with_name("decoding.py")

_threads = ThreadPoolExecutor(CHILDREN, thread_name_prefix="sandbox")
_slots = FairSemaphore(CHILDREN, OWNER_WAITING, ALL_WAITING)
_disk = Shares(ON_DISK_BYTES)


@dataclass(frozen=True, slots=True)
class Sound:
    """Content of a file: mono, little-endian 16-bit PCM, its rate in Hz and its length.

    Samples are mapped from a file that is gone when they are.
    """

    samples: bytes | mmap
    sample_rate: int
    seconds: float


class NotAudio(ValueError):
    """A file without sound. Its text says why, after "cannot be decoded:"."""


class TooLong(ValueError):
    """More sound than was requested: longer than `seconds`. Its text says so."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"more than {seconds:g} s")
        self.seconds = seconds


async def decode(data: bytes | Path, sample_rate: int, max_seconds: float, owner: str = "") -> Sound:
    """The sound of a file, mixed to mono. Cancelled, it leaves no process behind and no place occupied.

    Args:
        data: the file, or where it lies.
        sample_rate: samples per second of the result.
        max_seconds: longest sound that is taken. Memory and time follow it, not what the file says.
        owner: owner of the file; files of one owner are decoded one after the other, and those of others in between.

    Raises:
        NotAudio, TooLong: as the module says.
        QueueFull: too many files wait, of this owner or in all.
        SharesExhausted: too much sound is held.
    """
    if data == b"":
        raise NotAudio("the file is empty")
    async with _slots.of(owner):
        decoder = _Decoder()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(_threads, decoder.decode, data, sample_rate, max_seconds, owner)
        finally:
            decoder.stop()


class _Decoder:
    """One child, run by one thread, stopped from anywhere."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_stopped = False
        self._child: Child | None = None

    def stop(self) -> None:
        """Kills the child, or keeps it from being started."""
        with self._lock:
            self._is_stopped = True
            if self._child:
                self._child.kill()

    def decode(self, data: bytes | Path, sample_rate: int, max_seconds: float, owner: str) -> Sound:
        cpu_s = LEAST_CPU_S + int(max_seconds / SPEED)
        limit_bytes = int((max_seconds + PADDING_S) * sample_rate) * 2
        with (
            _opened(data) as file,
            self._start(file, sample_rate, max_seconds, cpu_s) as child,
            _Output(owner) as output,
        ):
            try:
                _read(child, output, limit_bytes, PATIENCE * cpu_s)
            finally:
                self.stop()
            _check(child.errors(4096), max_seconds)
            return Sound(output.samples(), sample_rate, output.size / 2 / sample_rate)

    def _start(self, file: int, *arguments: float) -> Child:
        with self._lock:
            if self._is_stopped:
                raise InterruptedError
            self._child = Child(PROGRAM, *arguments, library="av", nice=NICE, stdin=file, stderr=subprocess.PIPE)
            return self._child


@contextmanager
def _opened(data: bytes | Path) -> Iterator[int]:
    """A descriptor to read the file from, from its beginning."""
    with _in_memory() if isinstance(data, bytes) else data.open("rb") as file:
        if isinstance(data, bytes):
            file.write(data)
            file.seek(0)
        yield file.fileno()


def _in_memory() -> IO[bytes]:
    """A file that takes its pages with it when it is closed. Of a heap, glibc keeps megabytes for every thread."""
    return os.fdopen(os.memfd_create("sound"), "w+b")


class _Output:
    """Output of a child. Beyond some bytes it lies on disk, where it counts for its owner until it is released."""

    def __init__(self, owner: str) -> None:
        self._owner, self._disk = owner, _disk
        self._file = _in_memory()
        self._on_disk = 0
        self.size = 0

    def write(self, block: bytes) -> None:
        """Raises SharesExhausted where there is no more space on the disk."""
        self.size += len(block)
        if self.size > IN_MEMORY_BYTES:
            self._disk.take(self._owner, self.size - self._on_disk)
            before, self._on_disk = self._on_disk, self.size  # at once: a full disk must not keep what was taken
            if not before:
                with self._file as memory:
                    self._file = TemporaryFile(prefix="sound-")  # noqa: SIM115 (closed with this)
                    memory.seek(0)
                    copyfileobj(memory, self._file)
        self._file.write(block)

    def samples(self) -> bytes | mmap:
        if not self.size:
            return b""  # nothing that could be mapped
        self._file.flush()
        samples = mmap(self._file.fileno(), self.size, access=ACCESS_READ)
        finalize(samples, self._disk.give_back, self._owner, self._on_disk)
        self._on_disk = 0
        return samples

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._disk.give_back(self._owner, self._on_disk)
        self._file.close()  # may fail on a full disk


def _read(child: Child, output: _Output, limit_bytes: int, timeout_s: float) -> None:
    """Reads what a child writes until it ends. Raises NotAudio if it writes more than it may, or takes too long."""
    with suppress(ChildError):
        for block in child.blocks(timeout_s):
            output.write(block)
            if output.size > limit_bytes:
                break
        else:
            return
    raise NotAudio("decoding took too long")


def _check(report: str, max_seconds: float) -> None:
    """Raises the verdict of a child, unless it is `sound`."""
    _, ready, verdict = report.partition("ready\n")
    if not ready:
        raise RuntimeError(f"the decoder did not start: {report.strip()[-500:]}")
    match verdict.strip():
        case "sound":
            return
        case "too_long":
            raise TooLong(max_seconds)
        case word:
            raise NotAudio(REASONS.get(word, "decoding failed, or took too much time or memory"))
