"""Images in `data:` addresses: how large they are, their names in caches, and their pixels, within bounds.

A file of 20 kB may hold an image of a gigabyte. Its header is read first, and nothing else of one that is too large.
Nothing is fetched. Needs Pillow, and `decode` needs vLLM. The bounds are in docs/decision-models.md#images.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from contract.errors import INVALID_REQUEST, ApiError
from contract.images import ADDRESS, KINDS
from contract.limits import CHAT_PIXELS, IMAGE_PIXELS

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_RATIO = 100
"""Largest ratio of the longer side to the shorter. Models scale by one side; the other must stay bounded."""
READ_PIXELS = 1024 * 1024
"""Pixels of an image as a model gets it; larger ones are scaled down."""


def refuse_large(images: Sequence[tuple[str, str]]) -> None:
    """Raises INVALID_REQUEST for one that is too large or not an image, and for too many pixels together.

    Blocks, some milliseconds a megabyte. `images` are fields of the request and the addresses in them.
    """
    total = 0
    for param, address in images:
        width, height = _size(address, param)
        _check_pixels(width, height, param)
        total += width * height
    if total > CHAT_PIXELS:
        raise INVALID_REQUEST(
            f"images of {total} pixels together were sent; a request may have at most {CHAT_PIXELS}", param="messages"
        )


def _check_pixels(width: int, height: int, param: str) -> None:
    if width * height > IMAGE_PIXELS:
        raise INVALID_REQUEST(
            f"an image of {width} x {height} pixels was sent; at most {IMAGE_PIXELS} pixels are allowed", param=param
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
            f"an image of far more than {IMAGE_PIXELS} pixels was sent; at most {IMAGE_PIXELS} are allowed", param=param
        ) from None
    except Exception:
        # Decoders raise anything.
        raise INVALID_REQUEST(
            f"an image cannot be read; it must be a valid file of one of {', '.join(KINDS)}", param=param
        ) from None


def cache_names(addresses: Sequence[str], salt: str | None) -> list[str]:
    """The name of each image in caches: another for each salt, so that response times show nothing about others.

    Without a salt no later request finds it.
    """
    secret = (salt or secrets.token_hex(16)).encode()
    return [hashlib.blake2b(address.encode(), key=hashlib.sha256(secret).digest()).hexdigest() for address in addresses]


def decode(address: str) -> Image:
    """The image of a `data:image/...;base64,` address: upright, RGB on white, at most READ_PIXELS.

    Raises INVALID_REQUEST where it is too large, or not an image of the type that the address names.
    """
    head = ADDRESS.match(address)
    if head is None:
        raise unreadable("an image is not a base64 `data:` address of a supported type")
    kind = head[0].removeprefix("data:image/").removesuffix(";base64,")
    try:
        return _decode(base64.b64decode(address[head.end() :], validate=True), kind.upper())
    except ApiError:
        raise
    except Exception:
        # Decoders raise anything, and Pillow has a bound of its own above ours.
        raise unreadable(f"an image cannot be read as `image/{kind}`, the type that its address states") from None


def _decode(data: bytes, format_name: str) -> Image:
    from PIL import Image
    from vllm.entrypoints.generate.structured_decisions.strategies import cap_pixels
    from vllm.multimodal.image import convert_image_mode, normalize_image

    with Image.open(BytesIO(data), formats=[format_name]) as image:
        width, height = image.size
        _check_pixels(width, height, "images")
        if max(width, height) > MAX_RATIO * min(width, height):
            raise unreadable(
                f"an image of {width} x {height} pixels was sent; one side may be at most {MAX_RATIO} times as long "
                "as the other"
            )
        image.load()  # here, because what follows hides that a file is cut short
        small: Image.Image = cap_pixels(convert_image_mode(normalize_image(image), "RGB"), READ_PIXELS)
        return small


def unreadable(message: str) -> ApiError:
    """The error for an image that cannot be read."""
    return INVALID_REQUEST(message, param="images")
