"""Bytes of the service: samples of voices, reference clips, recordings on their way. A folder, or an S3 store.

    <home>/bytes                    `blob_folder.py`    files of mode 0600, each whole or not there at all
    PARLANCE_BLOBS_URL
      = file:///folder              the same, in a folder that all ingress replicas can reach
      = s3://bucket/prefix          `blob_s3.py`        the usual AWS_... variables say where, and with which key

Names are made by the service, never taken from a client: `samples/espeak-ng/M1-de.mp3`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import unquote, urlsplit

BLOBS_VARIABLE = "PARLANCE_BLOBS_URL"
FOLDER = "bytes"

CHUNK_BYTES = 1 << 20
"""Of what is read at a time."""

MAX_NAME_CHARS = 200
NAME_PATTERN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes on their way out. `chunks` has `size_bytes` bytes in all; close it where not all of them are read."""

    size_bytes: int
    chunks: AsyncGenerator[bytes, None]


class Blobs(Protocol):
    """A store of bytes by name. Every method raises STATE_UNAVAILABLE where the store does not work."""

    async def put(self, name: str, data: bytes | AsyncIterable[bytes]) -> int:
        """Stores all of `data` under `name`, or nothing; replaces what was there. Returns its length in bytes.

        Once it has returned, the bytes survive the death of process and machine. What the iteration of `data` raises
        is passed on.
        """
        ...

    async def find(self, name: str) -> bytes | None:
        """The bytes under `name`, None if there are none."""
        ...

    async def stream(self, name: str) -> Blob | None:
        """The bytes under `name` piece by piece, None if there are none."""
        ...

    async def exists(self, name: str) -> bool:
        """Whether there are bytes under `name`."""
        ...

    async def delete(self, name: str) -> None:
        """Removes the bytes under `name`; it is no error if there are none."""
        ...

    async def presign(self, name: str, method: Literal["GET", "PUT"], valid_s: int) -> str | None:
        """An address at the store itself, valid so long; None where this server serves the bytes itself."""
        ...


def open_blobs(home: Path, url: str | None = None) -> Blobs:
    """The store at `url`, or the folder `<home>/bytes`. Raises ValueError for an address of another kind."""
    parts = urlsplit((home / FOLDER).resolve().as_uri() if url is None else url)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        from state.blobs.folder import FolderBlobs

        return FolderBlobs(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        from state.blobs.s3 import S3Blobs

        return S3Blobs(parts.netloc, parts.path.strip("/"))
    raise ValueError(f"{BLOBS_VARIABLE} must look like s3://bucket/prefix or file:///folder")


def checked(name: str) -> str:
    """`name` if it is one of ours. Raises ValueError: a name that is not is a fault of this program."""
    if len(name) > MAX_NAME_CHARS or not NAME_PATTERN.fullmatch(name):
        raise ValueError(f"{name[:MAX_NAME_CHARS]!r} is no name of a blob")
    return name
