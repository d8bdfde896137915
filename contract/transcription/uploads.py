"""POST /audio/uploads: tickets for recordings that are too long for a body."""

from __future__ import annotations

from typing_extensions import TypedDict

from contract.base import Lenient
from contract.errors import INVALID_REQUEST, REQUEST_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE
from contract.limits import UPLOAD_BYTES

_KINDS = ("mpeg", "mp4", "x-m4a", "aac", "wav", "webm", "ogg", "opus", "flac")
RECORDING_TYPES = tuple(f"audio/{kind}" for kind in _KINDS)
"""Values of `mime` for a ticket."""


class UploadRequest(Lenient):
    """A body of POST /audio/uploads.

    Attributes:
        mime: media type of the recording, e.g. `audio/mpeg`; parameters such as `; codecs=opus` are cut.
        size: bytes of the file.
        model: model that will transcribe the recording, so that it starts during the upload.
    """

    mime: str
    size: int
    model: str | None = None

    @property
    def content_type(self) -> str:
        """`mime` without its parameters."""
        return self.mime.partition(";")[0].strip().lower()

    def check(self) -> None:
        """Raises UNSUPPORTED_MEDIA_TYPE, REQUEST_TOO_LARGE, and INVALID_REQUEST for a size that no file has."""
        if self.content_type not in RECORDING_TYPES:
            raise UNSUPPORTED_MEDIA_TYPE(
                f"`mime` is `{self.mime[:60]}`; allowed are {', '.join(RECORDING_TYPES)}", param="mime"
            )
        if self.size < 1:
            raise INVALID_REQUEST(f"`size` is {self.size}; it must be the length of the file in bytes", param="size")
        if self.size > UPLOAD_BYTES:
            raise REQUEST_TOO_LARGE(
                f"`size` is {self.size} bytes; a recording may have at most {UPLOAD_BYTES}", param="size"
            )


class UploadTicket(TypedDict):
    """Ticket for one PUT of the bytes with this `content_type`; a transcription then names them by `upload_id`."""

    upload_id: str
    upload_url: str
    token: str
    content_type: str
    max_bytes: int
