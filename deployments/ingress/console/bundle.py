"""The files of the console's page, in memory: what is not in the table is not there, whatever its path says."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "console"

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

    @classmethod
    def read(cls, path: Path) -> PageFile:
        """A file of the folder."""
        plain = path.read_bytes()
        # Without a time in it, so that every replica sends the same bytes.
        packed = gzip.compress(plain, mtime=0)
        return cls(TYPES[path.suffix], plain, packed, sha256(plain).hexdigest()[:32])


def read_bundle(folder: Path = FOLDER) -> dict[str, PageFile]:
    """All files of a folder, by their paths in it. Links are no part of it."""
    return {
        path.relative_to(folder).as_posix(): PageFile.read(path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in TYPES and path.is_file() and not path.is_symlink()
    }
