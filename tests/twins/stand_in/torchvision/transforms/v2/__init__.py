"""Transforms over tensors."""

from torchvision.transforms.v2 import functional as functional
