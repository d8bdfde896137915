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
"""Channels that hear of the errors of all before them in one product."""


def sensitive_layers(model: Any, sample: Tensor) -> list[int]:
    """The layers that keep `down_proj`: those that change the model's answers most when its input alone is rounded.

    The change is Kullback and Leibler's divergence over the tokens of `sample` (texts, tokens).
    """
    layers, calls = model.model.layers, []
    hooks = [layer.register_forward_pre_hook(lambda _, *call: calls.append(call), with_kwargs=True) for layer in layers]
    model.model(sample, use_cache=False)  # layers that are called again would find the keys of before
    for hook in hooks:
        hook.remove()

    def answers(first: int) -> Tensor:
        """Log-probabilities of the next tokens. Layers before the `first` compute what they did the first time."""
        (hidden,), keywords = calls[first]
        for layer in layers[first:]:
            hidden = layer(hidden, **keywords)
        logits: Tensor = model.lm_head(model.model.norm(hidden))
        return logits.log_softmax(-1)

    expected, losses = answers(0), []
    for number, layer in enumerate(layers):
        hook = layer.mlp.down_proj.register_forward_pre_hook(lambda _part, inputs: (round_to_int8(inputs[0]),))
        losses.append(float((expected.exp() * (expected - answers(number))).sum()))
        hook.remove()
    sensitive: list[int] = []
    for number in sorted(range(len(layers)), key=losses.__getitem__, reverse=True):
        if len(sensitive) >= MOST_KEPT * len(layers) or sum(losses[i] for i in sensitive) >= KEPT_LOSS * sum(losses):
            break
        sensitive.append(number)
    return sensitive


def round_to_int8(x: Tensor) -> Tensor:
    """`x` (..., channels) as it is after 8 bits, with one scale for all channels."""
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-8) / LARGEST
    return (x / scale).round() * scale


def rounded(weight: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """`weight` (rows, channels) in int8 and the scale of each row, for inputs of which `spread_of` has told.

    One channel after the other is rounded, and makes up for the errors of those before it as far as it goes along with
    them in the inputs (GPTQ, arXiv:2210.17323, in the form of QuIP's LDLQ, arXiv:2307.13304, which inverts nothing).
    """
    import torch

    scale, channels = weight.abs().amax(1) / LARGEST, weight.shape[1]
    # Channels come first, so that each is read as one piece of memory.
    whole = torch.empty(channels, len(weight), dtype=torch.int8)
    errors = torch.empty(channels, len(weight))
    for start in range(0, channels, BLOCK):
        end = min(start + BLOCK, channels)
        piece = weight[:, start:end].T.contiguous()
        target = piece + spread[:start, start:end].T @ errors[:start]
        for channel in range(start, end):
            number = channel - start
            whole[channel] = (target[number] / scale).round_().clamp_(-LARGEST, LARGEST)
            errors[channel] = piece[number] - whole[channel] * scale
            target[number:].addr_(spread[channel, channel:end], errors[channel])
    return whole.T.contiguous(), scale[:, None]


def spread_of(inputs: Tensor) -> Tensor:
    """How far the error of each channel of `inputs` (tokens, channels) goes into those behind it.

    It is the unit upper factor of their products (channels, channels), found from the last channel on. Each token
    counts alike, however large its numbers.
    """
    import torch

    alike = inputs / inputs.norm(dim=1, keepdim=True).clamp_min(1e-6)
    products = (alike.T @ alike).flip(0, 1)
    products.diagonal().add_(DAMPING * products.diagonal().mean())
    factor = torch.linalg.cholesky(products).flip(0, 1)
    return factor / factor.diagonal()
