"""The files of the console's page, in memory: what is not in the table is not there, whatever its path says."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "console"

PAGE = "index.html"

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
"""Endings of the files that are served."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file as it is sent: plain, and compressed by gzip. `digest` is that of its plain bytes."""

    media_type: str
    plain: bytes
    packed: bytes
    digest: str


@cache
def read_bundle(folder: Path = FOLDER) -> dict[str, PageFile]:
    """All files of a folder, by their paths in it, read once. Links are no part of it.

    The digest of the page itself is that of all files: an open page sees by it that the server has newer ones.
    """
    files: dict[str, PageFile] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in TYPES and path.is_file() and not path.is_symlink():
            plain = path.read_bytes()
            packed = gzip.compress(plain, mtime=0)  # without a time in it: every replica sends the same bytes
            digest = sha256(plain).hexdigest()[:32]
            files[path.relative_to(folder).as_posix()] = PageFile(TYPES[path.suffix], plain, packed, digest)
    whole = sha256("".join(file.digest for file in files.values()).encode()).hexdigest()[:32]
    return files | {PAGE: replace(files[PAGE], digest=whole)}
