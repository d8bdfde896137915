"""Bytes in a local folder. Written beside, synced, then renamed: after a crash a blob is whole or absent.

Every put and delete syncs all folders on the way to its name, also those that it finds: the call that made them, or
removed the name, may still be at work, may have failed, or may have died with its process before its own sync.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import secrets
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from contract.errors import STATE_UNAVAILABLE, STORE_FULL
from contract.limits import SPARE_BYTES
from state.blobs.base import CHUNK_BYTES, Blob, checked

T = TypeVar("T")
log = logging.getLogger(f"parlance.{__name__}")

UNFINISHED = ".unfinished"
"""Folder of files that are being written. No blob's name begins with a dot."""

THREADS = ThreadPoolExecutor(16, "blobs")
"""Of their own, so that a disk that hangs holds up nothing else."""

UNFINISHED_S = 7200
"""Seconds without a write after which an unfinished file is taken for orphaned, and deleted."""


def free_bytes(folder: Path) -> int:
    """Free space of the disk on which `folder` is."""
    return shutil.disk_usage(folder).free


class FolderBlobs:
    """A folder, created if missing, that only this user can list and read.

    Args:
        folder: path of the folder.
        free_bytes: returns the free bytes of a folder's disk.
    """

    def __init__(self, folder: Path, free_bytes: Callable[[Path], int] = free_bytes) -> None:
        self._folder = folder
        self._free_bytes = free_bytes
        self._unfinished = folder / UNFINISHED
        _make(self._unfinished)
        folder.chmod(0o700)
        _remove_orphans(self._unfinished)

    async def put(self, name: str, data: bytes | AsyncIterable[bytes]) -> int:
        target, fresh, size = self._path(name), self._unfinished / secrets.token_hex(16), 0
        file = await _in_thread(_create, fresh)
        try:
            async for chunk in _once(data) if isinstance(data, bytes) else data:
                # What the service makes itself is small, and may take the last of the space.
                await _in_thread(_write_all if isinstance(data, bytes) else self._write, file, chunk)
                size += len(chunk)
            await _in_thread(os.fsync, file.fileno())
            await _in_thread(self._give_name, fresh, target)
        finally:  # in a thread, too: a file system across a network writes what is left when a file is closed
            await _in_thread(file.close)
            await _in_thread(fresh.unlink, True)
        return size

    async def free_bytes(self) -> float:
        return await _in_thread(self._free_bytes, self._folder) - SPARE_BYTES

    async def find(self, name: str) -> bytes | None:
        blob = await self.stream(name)
        return None if blob is None else b"".join([chunk async for chunk in blob.chunks])

    async def stream(self, name: str) -> Blob | None:
        file = await _in_thread(_open, self._path(name))
        return None if file is None else Blob(os.fstat(file.fileno()).st_size, _chunks(file))

    async def exists(self, name: str) -> bool:
        return await _in_thread(self._path(name).is_file)

    async def delete(self, name: str) -> None:
        await _in_thread(self._remove, self._path(name), os.unlink)

    async def delete_all(self, folder: str) -> None:
        await _in_thread(self._remove, self._path(folder), shutil.rmtree)

    async def drop_unfinished(self) -> None:
        await _in_thread(_remove_orphans, self._unfinished)

    async def address(self, name: str, valid_s: int) -> str:
        return self._path(name).absolute().as_uri()

    async def presign(self, name: str, valid_s: int) -> str | None:
        checked(name)
        return None

    def _write(self, file: BinaryIO, data: bytes) -> None:
        if len(data) > self._free_bytes(self._folder) - SPARE_BYTES:
            log.warning("the disk for recordings is full: uploads must leave %d bytes of it free", SPARE_BYTES)
            raise STORE_FULL()
        _write_all(file, data)

    def _give_name(self, fresh: Path, target: Path) -> None:
        _make(target.parent)
        fresh.replace(target)
        self._sync_names(target)

    def _remove(self, path: Path, remove: Callable[[Path], None]) -> None:
        # Somebody else may be doing the same.
        with suppress(FileNotFoundError):
            remove(path)
        self._sync_names(path)

    def _sync_names(self, path: Path) -> None:
        """Makes it durable that `path` is there, or is not."""
        for folder in path.parents[: len(path.relative_to(self._folder).parts)]:
            with suppress(FileNotFoundError):
                sync_folder(folder)

    def _path(self, name: str) -> Path:
        return self._folder / checked(name)


def _create(path: Path) -> BinaryIO:
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0)


def _open(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        return None


def _remove_orphans(folder: Path) -> None:
    for path in folder.iterdir():
        # Somebody may be finishing it just now.
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < time.time() - UNFINISHED_S:
                path.unlink()


def _write_all(file: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _make(folder: Path) -> None:
    """Makes a folder and those above it that are missing, all of them durable."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
        sync_folder(missing.parent)


async def _once(data: bytes) -> AsyncGenerator[bytes, None]:
    yield data


async def _chunks(file: BinaryIO) -> AsyncGenerator[bytes, None]:
    try:
        while chunk := await _in_thread(file.read, CHUNK_BYTES):
            yield chunk
    finally:
        await _in_thread(file.close)


async def _in_thread(function: Callable[..., T], *args: Any) -> T:
    """Runs to its end even if the waiter is cancelled: a file must not be closed under a thread that uses it.

    A file that was opened for a waiter who is gone is closed.
    """
    work = asyncio.get_running_loop().run_in_executor(THREADS, function, *args)
    try:
        return await asyncio.shield(work)
    except OSError as error:
        log.error("the file store (folder) failed: %s", type(error).__name__)
        raise STATE_UNAVAILABLE() from None
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if work.exception() is None and isinstance(opened := work.result(), io.IOBase):
            await _in_thread(opened.close)
        raise


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable: a rename, a link and a new file are once their folder is synced."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
