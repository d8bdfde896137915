"""The names of the older interface."""

from torchvision.transforms.v2.functional import InterpolationMode as InterpolationMode
from torchvision.transforms.v2.functional import pil_to_tensor as pil_to_tensor
from torchvision.transforms.v2.functional import to_pil_image as to_pil_image
