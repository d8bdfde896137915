"""Images inside a request body, as `data:` addresses. The server fetches no address of a client: no SSRF."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Literal

from pydantic import AfterValidator

from contract.base import Lenient

ADDRESS = re.compile(r"data:image/(?:png|jpeg|webp|gif);base64,")


KINDS = {
    "png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "jpeg": re.compile(rb"\xff\xd8\xff"),
    "gif": re.compile(rb"GIF8[79]a"),
    "webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
"""First bytes of a file of each kind."""


def address(image: bytes) -> str:
    """Returns the `data:` address of the file `image`. Raises ValueError for other kinds of files."""
    for kind, start in KINDS.items():
        if start.match(image):
            return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
    raise ValueError(f"the image must be a file of one of these types: {', '.join(KINDS)}")


def decoded_bytes(address: str) -> int:
    """Returns the bytes of the image at a `data:` address. Raises ValueError for other addresses and for bad base64."""
    start = ADDRESS.match(address)
    if not start:
        raise ValueError(
            "images must be sent as `data:image/png;base64,...` (or jpeg, webp, gif); the server fetches none"
        )
    try:
        return len(base64.b64decode(address[start.end() :], validate=True))
    except (binascii.Error, ValueError):
        raise ValueError("the image's `data:` address is not valid base64") from None


def _checked(address: str) -> str:
    decoded_bytes(address)
    return address


DataUrl = Annotated[str, AfterValidator(_checked)]


class ImageUrl(Lenient):
    """An image inside the body: the server fetches nothing for a client."""

    url: DataUrl
    detail: Literal["auto", "low", "high"] | None = None
