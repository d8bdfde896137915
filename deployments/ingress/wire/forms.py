"""Reads a form that brings one file: multipart/form-data, parsed as it arrives, in memory and within its bounds."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from hashlib import sha256

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from contract.body import Hold
from contract.errors import INVALID_REQUEST, REQUEST_TOO_LARGE
from contract.limits import MIB, RECORDING_BODY_BYTES, RECORDING_FORM_BYTES
from deployments.ingress.front.bodies import stream_body

MAX_FIELDS = 200
"""Fields of a form. A hundred terms and every other field are fewer."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form that was read.

    Attributes:
        pairs: name and text of each field, in order.
        file: bytes of the file, None if there is none.
    """

    pairs: tuple[tuple[str, str], ...]
    file: bytes | None

    def digest(self) -> str:
        """SHA-256 of what was sent; the boundary between the parts is left out: clients make a new one each time."""
        hashed = sha256(repr(self.pairs).encode())
        hashed.update(b"-" if self.file is None else b"+" + self.file)
        return hashed.hexdigest()


async def read_form(request: Request, hold: Hold, file_field: str) -> Form:
    """The form of `request`, with one file, `file_field`. Raises INVALID_REQUEST, and what `stream_body` raises."""
    hint = "; upload longer recordings under a ticket of POST /audio/uploads"
    stream = stream_body(request, hold, RECORDING_BODY_BYTES + RECORDING_FORM_BYTES, hint)
    parser = _InMemory(request.headers, stream, max_files=1, max_fields=MAX_FIELDS, max_part_size=RECORDING_BODY_BYTES)
    try:
        async with aclosing(stream):
            form = _form(await parser.parse(), file_field)
    except MultiPartException as error:
        raise INVALID_REQUEST(f"the form cannot be read: {error.message.rstrip('.')[:200]}") from None
    finally:
        began_a_file = parser.close()
    if began_a_file and form.file is None:
        raise INVALID_REQUEST("the form ends in the middle of the file; send all of it", param=file_field)
    return form


class _InMemory(MultiPartParser):
    """A file within the bounds is never written to disk."""

    spool_max_size = 8 * MIB
    # UTF-8, whatever the header names: Python has codecs that take minutes, raise other errors, or give surrogates.
    _charset = property(lambda _: "utf-8", lambda *_: None)

    def close(self) -> bool:
        """Closes every file that began, also one that never ended; says whether there was one."""
        for file in self._files_to_close_on_error:
            file.close()
        return bool(self._files_to_close_on_error)


def _form(parts: FormData, file_field: str) -> Form:
    file: bytes | None = None
    pairs: list[tuple[str, str]] = []
    for name, part in parts.multi_items():
        if isinstance(part, UploadFile):
            file = _file(name, part, file_field)
        elif name == file_field:
            raise INVALID_REQUEST(
                f"`{file_field}` was sent as text; send it as a file with a file name", param=file_field
            )
        else:
            pairs.append((name, part))
    if sum(len(f"{name}{text}".encode()) for name, text in pairs) > RECORDING_FORM_BYTES:
        raise REQUEST_TOO_LARGE(f"the fields besides `{file_field}` are longer than {RECORDING_FORM_BYTES} bytes")
    return Form(tuple(pairs), file)


def _file(name: str, part: UploadFile, file_field: str) -> bytes:
    if name != file_field:
        raise INVALID_REQUEST(
            f"the file was sent in the field `{name[:40]}`; send it as `{file_field}`", param=file_field
        )
    if (part.size or 0) > RECORDING_BODY_BYTES:
        raise REQUEST_TOO_LARGE(
            f"`{file_field}` has {part.size} bytes; at most {RECORDING_BODY_BYTES} are allowed here; "
            "upload longer recordings under a ticket of POST /audio/uploads",
            param=file_field,
        )
    return part.file.read()
