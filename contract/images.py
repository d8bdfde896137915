"""Images inside a request body, as `data:` addresses. Nothing is ever fetched for a client."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Literal

from pydantic import field_validator

from contract.base import Lenient

ADDRESS = re.compile(r"data:image/(?:png|jpeg|webp|gif);base64,")


KINDS = {
    "png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "jpeg": re.compile(rb"\xff\xd8\xff"),
    "gif": re.compile(rb"GIF8[79]a"),
    "webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
"""How a file of each kind begins."""


def address(image: bytes) -> str:
    """The `data:` address of the file `image`. Raises ValueError for one of another kind."""
    for kind, start in KINDS.items():
        if start.match(image):
            return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
    raise ValueError(f"the image is no file of these kinds: {', '.join(KINDS)}")


def decoded_bytes(address: str) -> int:
    """Length of the image at a `data:` address. Raises ValueError for an address of another kind and for bad base64."""
    start = ADDRESS.match(address)
    if not start:
        raise ValueError("images are taken as `data:image/png;base64,...` (or jpeg, webp, gif) only; none is fetched")
    try:
        return len(base64.b64decode(address[start.end() :], validate=True))
    except (binascii.Error, ValueError):
        raise ValueError("the image's `data:` address is not valid base64") from None


class ImageUrl(Lenient):
    """An image in the body itself: nothing is ever fetched for a client."""

    url: str
    detail: Literal["auto", "low", "high"] | None = None

    @field_validator("url")
    @classmethod
    def _is_data(cls, url: str) -> str:
        decoded_bytes(url)
        return url
