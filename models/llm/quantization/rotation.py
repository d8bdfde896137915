"""Turns a decoder without changing what it computes, so that no channel stands out when numbers are rounded.

What one product turns, the next one turns back. Nothing of it costs time in a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

BALANCE = 0.5
"""How much of the range of `down_proj`'s input moves into its weight: SmoothQuant's alpha."""
MOST_BALANCED = 64


def turn(model: Any) -> None:
    """Folds norms into the products behind them, and turns the hidden state and the values of each head.

    The head is a matrix of its own afterwards, which the embedding is not any more.
    """
    import torch

    config, decoder = model.config, model.model
    embedding = turned(decoder.embed_tokens.weight)
    head = turned(model.lm_head.weight * _unfolded(decoder.norm))
    for layer in decoder.layers:
        attention, mlp = layer.self_attn, layer.mlp
        before_attention, before_mlp = _unfolded(layer.input_layernorm), _unfolded(layer.post_attention_layernorm)
        for part in (attention.q_proj, attention.k_proj, attention.v_proj):
            _set(part, turned(part.weight * before_attention))
        for part in (mlp.gate_proj, mlp.up_proj):
            _set(part, turned(part.weight * before_mlp))
        for part in (attention.o_proj, mlp.down_proj):
            _set(part, turned(part.weight.T).T)
        _turn_values(attention, config)
    config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(head)
    decoder.embed_tokens.weight = torch.nn.Parameter(embedding)


def _unfolded(norm: Any) -> Tensor:
    """The scales of `norm`, which has none afterwards."""
    scales: Tensor = norm.weight.clone()
    norm.weight.fill_(1)
    return scales


def _turn_values(attention: Any, config: Any) -> None:
    """Turns each head's values, and what reads them. Queries and keys stay: their positions are rotations already."""
    size, width = attention.head_dim, config.hidden_size
    values = attention.v_proj.weight.view(-1, size, width)
    _set(attention.v_proj, turned(values.mT).mT.reshape(-1, width))
    if attention.v_proj.bias is not None:
        attention.v_proj.bias.copy_(turned(attention.v_proj.bias.view(-1, size)).flatten())
    reading = attention.o_proj.weight.view(width, -1, size)
    _set(attention.o_proj, turned(reading).reshape(width, -1))


def turned(x: Tensor) -> Tensor:
    """`x` (..., size) times an orthogonal matrix, the same each time, that spreads every channel over all.

    The matrix is made of random signs, and of Sylvester's Hadamard matrix for the power of two in `size` and a discrete
    cosine transform for the rest: each is applied by itself, which for 896 channels is a seventh of the work.
    """
    import torch

    size = x.shape[-1]
    power = size & -size
    signs = torch.randint(2, (size,), generator=torch.Generator().manual_seed(0)) * 2 - 1
    parts = (x * signs).unflatten(-1, (size // power, power))
    return (_cosine(size // power).to(x) @ parts @ _hadamard(power).to(x)).flatten(-2)


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


def balance(layers: Sequence[Any], peaks: Sequence[Tensor]) -> list[Tensor]:
    """Scales channels between `up_proj` and `down_proj`, so that activations and weights have alike ranges.

    `peaks` are the largest inputs of each channel of each layer's `down_proj`. Returns by what these are divided now.
    """
    scales = []
    for layer, peak in zip(layers, peaks, strict=True):
        up, down = layer.mlp.up_proj, layer.mlp.down_proj
        weights = down.weight.abs().amax(0).clamp_min(1e-5)
        scale = peak.clamp_min(1e-5) ** BALANCE / weights ** (1 - BALANCE)
        scale = (scale / scale.log().mean().exp()).clamp(1 / MOST_BALANCED, MOST_BALANCED)
        _set(up, up.weight / scale[:, None])
        _set(down, down.weight * scale)
        scales.append(scale)
    return scales


def _set(part: Any, weight: Tensor) -> None:
    part.weight.copy_(weight)
