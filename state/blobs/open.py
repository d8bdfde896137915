"""The store that an address names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from state.blobs.base import Blobs

BLOBS_VARIABLE = "PARLANCE_BLOBS_URL"
FOLDER = "bytes"


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
