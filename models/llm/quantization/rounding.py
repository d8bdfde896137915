"""Rounds weights to 8 bits, so that what is lost on a calibration text is small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

LARGEST = 127
KEPT_LOSS = 2 / 3
"""The share of all layers' loss that goes with the layers whose `down_proj` keeps bfloat16."""
MOST_KEPT = 1 / 4
"""The share of layers that may do so; each costs the bytes that it would have saved."""
DAMPING = 0.01
"""What is added to the squares of the inputs, as a share of their mean: a short text says little of rare channels."""
BLOCK = 64
"""Columns that are rounded before the rest of the weight hears of their errors."""


def sensitive_layers(model: Any, sample: Tensor) -> list[int]:
    """The layers that keep `down_proj`: those that change the model's answers most when its input alone is rounded.

    The change is Kullback and Leibler's divergence over the tokens of `sample` (texts, tokens).
    """
    expected = model(sample).logits.log_softmax(-1)
    layers, losses = model.model.layers, []
    for layer in layers:
        hook = layer.mlp.down_proj.register_forward_pre_hook(lambda _part, inputs: (round_to_int8(inputs[0]),))
        losses.append(float((expected.exp() * (expected - model(sample).logits.log_softmax(-1))).sum()))
        hook.remove()
    sensitive: list[int] = []
    for layer in sorted(range(len(layers)), key=losses.__getitem__, reverse=True):
        if len(sensitive) >= MOST_KEPT * len(layers) or sum(losses[i] for i in sensitive) >= KEPT_LOSS * sum(losses):
            break
        sensitive.append(layer)
    return sensitive


def round_to_int8(x: Tensor) -> Tensor:
    """`x` (..., channels) as it is after 8 bits, with one scale for all channels."""
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-8) / LARGEST
    return (x / scale).round() * scale


def rounded(weight: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """`weight` (rows, channels) in int8 and the scale of each row, for inputs of which `spread_of` has told.

    One channel after the other is rounded, and those that follow make up for its error as far as they go along with it
    in the inputs (GPTQ, arXiv:2210.17323).
    """
    import torch

    scale = weight.abs().amax(1) / LARGEST
    # Channels come first, so that each is read as one piece of memory.
    rest, channels = weight.T.contiguous(), weight.shape[1]
    whole = torch.empty_like(rest, dtype=torch.int8)
    for start in range(0, channels, BLOCK):
        end = min(start + BLOCK, channels)
        errors = torch.empty_like(rest[start:end])
        for channel in range(start, end):
            whole[channel] = (rest[channel] / scale).round_().clamp_(-LARGEST, LARGEST)
            error = (rest[channel] - whole[channel] * scale) / spread[channel, channel]
            rest[channel:end].addr_(spread[channel, channel:end], error, alpha=-1)
            errors[channel - start] = error
        rest[end:].addmm_(spread[start:end, end:].T, errors, alpha=-1)
    return whole.T.contiguous(), scale[:, None]


def spread_of(inputs: Tensor) -> Tensor:
    """How far the error of each channel of `inputs` (tokens, channels) goes into those behind it.

    It is the upper factor of the inverse of their products (channels, channels), found as the inverse of the factor
    that begins at the last channel. Each token counts alike, however large its numbers.
    """
    import torch

    alike = inputs / inputs.norm(dim=1, keepdim=True).clamp_min(1e-6)
    products = (alike.T @ alike).flip(0, 1)
    unit = torch.eye(len(products))
    products += DAMPING * products.diagonal().mean() * unit
    factor = torch.linalg.cholesky(products)
    return torch.linalg.solve_triangular(factor, unit, upper=False).flip(0, 1)
