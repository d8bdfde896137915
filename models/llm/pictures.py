"""Pictures in `data:` addresses, before they are decoded: how large they are, and their names in caches.

A file of 20 kB may hold a picture of a gigabyte. Its header is read first, and nothing else of one that is too large.
Needs Pillow.
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
    """Raises INVALID_REQUEST for one that is too large or not a picture, and for too many pixels together.

    Blocks, some milliseconds a megabyte. `pictures` are fields of the request and the addresses in them.
    """
    total = 0
    for param, address in pictures:
        width, height = _size(address, param)
        if width * height > IMAGE_PIXELS:
            raise INVALID_REQUEST(
                f"an image of {width} x {height} pixels was sent; {IMAGE_PIXELS} pixels are allowed", param=param
            )
        total += width * height
    if total > CHAT_PIXELS:
        raise INVALID_REQUEST(
            f"images of {total} pixels together were sent; a request may have {CHAT_PIXELS}", param="messages"
        )


def _size(address: str, param: str) -> tuple[int, int]:
    from PIL import Image

    try:
        data = base64.b64decode(address[ADDRESS.match(address).end() :], validate=True)  # type: ignore[union-attr]
        # Any kind that is accepted, whichever the address names: many clients name `png` for all.
        with Image.open(BytesIO(data), formats=[kind.upper() for kind in KINDS]) as image:
            return image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise INVALID_REQUEST(
            f"an image of far more than {IMAGE_PIXELS} pixels was sent, which are allowed", param=param
        ) from None
    except Exception:
        # Decoders raise anything.
        raise INVALID_REQUEST(f"an image cannot be read as one of {', '.join(KINDS)}", param=param) from None


def cache_names(addresses: Sequence[str], salt: str | None) -> list[str]:
    """The name of each picture in caches: another for each salt, so that response times tell nothing about others.

    Without a salt no later request finds it.
    """
    secret = (salt or secrets.token_hex(16)).encode()
    return [hashlib.blake2b(address.encode(), key=hashlib.sha256(secret).digest()).hexdigest() for address in addresses]
