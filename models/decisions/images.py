"""Images of a decision, from `data:` addresses to pixels, within bounds. Spec 4: at most two, each of at most 4 MB.

A small file may hold a picture of any size, so its header is looked at before any pixel is computed. Nothing is
fetched, and only the declared format is tried.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from contract.errors import INVALID_REQUEST, ApiError
from contract.images import ADDRESS
from contract.limits import IMAGE_PIXELS

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_RATIO = 100
"""Of the longer side to the shorter. Models scale by one side, and the other must not become endless."""
READ_PIXELS = 1024 * 1024
"""Of an image as a model gets it; larger ones are scaled down."""


class Pictures:
    """Decodes one image at a time, away from the event loop: one in full size takes some hundred megabytes."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def decode(self, addresses: Sequence[str]) -> list[Image]:
        """Images in RGB, in order. Raises INVALID_REQUEST."""
        async with self._one:
            return [await asyncio.to_thread(decode, address) for address in addresses]


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
        if width * height > IMAGE_PIXELS:
            raise unreadable(
                f"an image of {width} x {height} pixels was sent; at most {IMAGE_PIXELS} pixels are allowed"
            )
        if max(width, height) > MAX_RATIO * min(width, height):
            raise unreadable(
                f"an image of {width} x {height} pixels was sent; one side may be at most {MAX_RATIO} times as long "
                "as the other"
            )
        image.load()  # here, because what follows hides that a file is cut short
        small: Image.Image = cap_pixels(convert_image_mode(normalize_image(image), "RGB"), READ_PIXELS)
        return small


def unreadable(message: str) -> ApiError:
    """What an image at fault is answered with."""
    return INVALID_REQUEST(message, param="images")
