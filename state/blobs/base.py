"""Interface of a store of bytes. Names are made by the service, never by a client: `samples/espeak-ng/M1-de.mp3`."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass
from typing import Protocol

CHUNK_BYTES = 1 << 20
"""Size of the pieces that are read."""

MAX_NAME_CHARS = 200
NAME_PATTERN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob being read. `chunks` yields `size_bytes` bytes in all; close it if they are not all read."""

    size_bytes: int
    chunks: AsyncGenerator[bytes, None]


class Blobs(Protocol):
    """A store of bytes by name. Every method raises STATE_UNAVAILABLE if the store fails."""

    async def put(self, name: str, data: bytes | AsyncIterable[bytes]) -> int:
        """Stores all of `data` under `name`, or nothing; replaces what was there. Returns its length in bytes.

        Once it has returned, the bytes survive a crash of process and machine. Exceptions from iterating `data` are
        passed on.
        """

    async def free_bytes(self) -> float:
        """Bytes that streams may still take; `math.inf` where the store has no end. More of a stream is STORE_FULL."""

    async def find(self, name: str) -> bytes | None:
        """The bytes under `name`, None if there are none."""

    async def stream(self, name: str) -> Blob | None:
        """The bytes under `name` as a stream, None if there are none."""

    async def exists(self, name: str) -> bool:
        """Says if there are bytes under `name`."""

    async def delete(self, name: str) -> None:
        """Deletes the bytes under `name`, if there are any."""

    async def delete_all(self, folder: str) -> None:
        """Deletes the bytes under every name that begins with `folder` and a slash."""

    async def drop_unfinished(self) -> None:
        """Deletes what processes left that died while they stored something."""

    async def address(self, name: str, valid_s: int) -> str:
        """Address at which an engine reads the bytes: `file:` of a shared folder, else `https:`, for `valid_s`."""

    async def presign(self, name: str, valid_s: int) -> str | None:
        """An address at the store to read from, valid for `valid_s`; None if this server has to serve the bytes."""


def checked(name: str) -> str:
    """`name`, if well formed. Raises ValueError otherwise: names are made by this program, so that is a bug."""
    if len(name) > MAX_NAME_CHARS or not NAME_PATTERN.fullmatch(name):
        raise ValueError(f"{name[:MAX_NAME_CHARS]!r} is not a valid name of a blob")
    return name
