"""Pictures in `data:` addresses, before they are decoded: how large they are, and what caches know them by.

A file of 20 kB may hold a picture of a gigabyte. Its header is looked at first, and nothing else is read of one that is
too large. Needs Pillow.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Sequence
from io import BytesIO

from contract.errors import INVALID_REQUEST
from contract.images import ADDRESS, KINDS
from contract.limits import CHAT_PIXELS, IMAGE_PIXELS


def refuse_large(pictures: Sequence[tuple[str, str]]) -> None:
    """Raises INVALID_REQUEST for one that is too large or no picture, and for too many pixels together.

    Blocks, some milliseconds a megabyte. `pictures` are fields of the request and the addresses in them.
    """
    total = 0
    for param, address in pictures:
        width, height = _size(address, param)
        if width * height > IMAGE_PIXELS:
            raise INVALID_REQUEST(
                f"an image of {width} x {height} pixels was sent; at most {IMAGE_PIXELS} pixels are allowed",
                param=param,
            )
        total += width * height
    if total > CHAT_PIXELS:
        raise INVALID_REQUEST(
            f"images of {total} pixels together were sent; a request may have at most {CHAT_PIXELS}", param="messages"
        )


def _size(address: str, param: str) -> tuple[int, int]:
    from PIL import Image

    try:
        data = base64.b64decode(address[ADDRESS.match(address).end() :], validate=True)  # type: ignore[union-attr]
        # Of the kinds that are taken, whichever the address names: many clients say `png` of all.
        with Image.open(BytesIO(data), formats=[kind.upper() for kind in KINDS]) as image:
            return image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise INVALID_REQUEST(
            f"an image of far more than {IMAGE_PIXELS} pixels was sent; at most {IMAGE_PIXELS} are allowed", param=param
        ) from None
    except Exception:
        # Decoders raise anything.
        raise INVALID_REQUEST(
            f"an image cannot be read; it must be a valid file of one of {', '.join(KINDS)}", param=param
        ) from None


def known_by(addresses: Sequence[str], salt: str | None) -> list[str]:
    """What caches know each picture by: for each salt another, so that no time tells what others have sent.

    Without a salt nobody finds it again.
    """
    secret = (salt or secrets.token_hex(16)).encode()
    return [hashlib.blake2b(address.encode(), key=hashlib.sha256(secret).digest()).hexdigest() for address in addresses]
