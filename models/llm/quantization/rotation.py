"""Turns a decoder without changing what it computes, so that no channel stands out when numbers are rounded.

What one product turns, the next one turns back. Only the input of `down_proj` is turned in each step: what stands
before it is no product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ROWS = 8192
"""Of a weight that are turned at a time: the embedding of a large vocabulary has half a gigabyte in float32."""
BLOCK = 256
"""The most channels that a step mixes. Blocks of 64 left three times the loss of blocks of 256, 512 took none away."""


def turned_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """The names and float32 values of all weights of `model`, with norms folded in, turned.

    The head is a matrix of its own, which the embedding is not any more.
    """
    decoder = model.model
    yield "model.embed_tokens.weight", turned(decoder.embed_tokens.weight)
    yield "lm_head.weight", turned(model.lm_head.weight, decoder.norm.weight.float())
    yield "model.norm.weight", decoder.norm.weight.new_ones(decoder.norm.weight.shape)
    for number, layer in enumerate(decoder.layers):
        for name, tensor in _turned_layer(layer):
            yield f"model.layers.{number}.{name}", tensor


def _turned_layer(layer: Any) -> Iterator[tuple[str, Tensor]]:
    attention, mlp, size = layer.self_attn, layer.mlp, layer.self_attn.head_dim
    for name in ("input_layernorm", "post_attention_layernorm"):
        yield f"{name}.weight", getattr(layer, name).weight.new_ones(layer.input_layernorm.weight.shape)
    for name in ("q_proj", "k_proj", "v_proj"):
        part = getattr(attention, name)
        weight = turned(part.weight, layer.input_layernorm.weight.float())
        bias = None if part.bias is None else part.bias.float()
        if name == "v_proj":  # queries and keys stay: their positions are rotations already
            weight = turned(weight.unflatten(0, (-1, size)).mT).mT.flatten(0, 1)
            bias = bias if bias is None else turned(bias.view(-1, size)).flatten()
        yield f"self_attn.{name}.weight", weight
        if bias is not None:
            yield f"self_attn.{name}.bias", bias
    output = turned(attention.o_proj.weight.T).T
    yield "self_attn.o_proj.weight", turned(output.unflatten(1, (-1, size))).flatten(1)
    before = layer.post_attention_layernorm.weight.float()
    yield "mlp.gate_proj.weight", turned(mlp.gate_proj.weight, before)
    up = turned(mlp.up_proj.weight, before)
    signs = _signs(len(up))  # which a step need not apply
    yield "mlp.up_proj.weight", up * signs[:, None]
    down = turned(mlp.down_proj.weight.T).T
    yield "mlp.down_proj.weight", InputTurn(len(up), down.dtype)((down * signs).contiguous())


def turned(x: Tensor, scale: Tensor | float = 1) -> Tensor:
    """`x` (..., size), times `scale`, times an orthogonal matrix that spreads channels; float32 at least.

    The matrix is made of random signs, and of Sylvester's Hadamard matrix for the power of two in `size` and a discrete
    cosine transform for the rest: each is applied by itself, which for 896 channels is a seventh of the work.
    """
    import torch

    size, dtype = x.shape[-1], torch.promote_types(x.dtype, torch.float32)
    out, power = torch.empty(x.shape, dtype=dtype), size & -size
    factors, cosine, hadamard = _signs(size) * scale, _cosine(size // power).to(dtype), _hadamard(power).to(dtype)
    for rows, target in zip(x.split(ROWS), out.split(ROWS), strict=True):
        parts = (rows.to(dtype) * factors).unflatten(-1, (size // power, power))
        target.copy_((cosine @ parts @ hadamard).flatten(-2))
    return out


class InputTurn:
    """Turns the rows that a product is given in each step, block by block."""

    def __init__(self, size: int, dtype: torch.dtype, block: int = BLOCK) -> None:
        self.block = _hadamard(min(size & -size, block)).to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return (x.unflatten(-1, (-1, len(self.block))) @ self.block).flatten(-2)


def _signs(size: int) -> Tensor:
    import torch

    return torch.randint(2, (size,), generator=torch.Generator().manual_seed(0)) * 2 - 1


def _hadamard(size: int) -> Tensor:
    import torch

    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < size:
        matrix = torch.kron(matrix, torch.tensor([[1, 1], [1, -1]], dtype=torch.float64))
    return matrix / math.sqrt(size)


def _cosine(size: int) -> Tensor:
    """It turns columns: one row for each frequency."""
    import torch

    steps = torch.arange(size, dtype=torch.float64)
    matrix = torch.cos(math.pi * (steps + 0.5) * steps[:, None] / size) * math.sqrt(2 / size)
    matrix[0] /= math.sqrt(2)
    return matrix.T
