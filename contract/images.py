"""Images inside a request body, as `data:` addresses. Nothing is ever fetched for a client."""

from __future__ import annotations

import base64
import binascii
import re

ADDRESS = re.compile(r"data:image/(?:png|jpeg|webp|gif);base64,")


def decoded_bytes(address: str) -> int:
    """Length of the image at a `data:` address. Raises ValueError for an address of another kind and for bad base64."""
    start = ADDRESS.match(address)
    if not start:
        raise ValueError("images are taken as `data:image/png;base64,...` (or jpeg, webp, gif) only; none is fetched")
    try:
        return len(base64.b64decode(address[start.end() :], validate=True))
    except (binascii.Error, ValueError):
        raise ValueError("the image's `data:` address is not valid base64") from None
