"""What image processors of transformers call: tensors of [..., channels, height, width]."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch


class InterpolationMode(Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


PILLOW = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Names of Pillow's numbers."""


def pil_to_tensor(image: Any) -> torch.Tensor:
    """Uint8 [channels, height, width]."""
    pixels = np.array(image)
    return torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1)


def to_pil_image(pixels: torch.Tensor) -> Any:
    """The reverse, of uint8 [channels, height, width]."""
    from PIL import Image

    return Image.fromarray(pixels.permute(1, 2, 0).numpy())


def resize(
    image: torch.Tensor,
    size: Sequence[int],
    interpolation: InterpolationMode | int = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> torch.Tensor:
    """To `size` (height, width); rounded where the image is of whole numbers."""
    mode = PILLOW[interpolation] if isinstance(interpolation, int) else interpolation.value
    batch = image.reshape(-1, *image.shape[-3:]).float()
    scaled = torch.nn.functional.interpolate(
        batch, tuple(size), mode=mode, antialias=bool(antialias), align_corners=False
    ).reshape(*image.shape[:-2], *size)
    return scaled if image.is_floating_point() else scaled.round().clamp(0, 255).to(image.dtype)


def pad(image: torch.Tensor, padding: Sequence[int], fill: float = 0, padding_mode: str = "constant") -> torch.Tensor:
    """`padding` is left, top, right, bottom."""
    left, top, right, bottom = padding
    return torch.nn.functional.pad(image, (left, right, top, bottom), mode=padding_mode, value=fill)


def normalize(image: torch.Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> torch.Tensor:
    """(image - mean) / std, channel by channel."""
    shift, scale = (torch.as_tensor(one, dtype=image.dtype).view(-1, 1, 1) for one in (mean, std))
    return (image - shift) / scale
