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
    turned = rotation(config.hidden_size).float()
    embedding = decoder.embed_tokens.weight @ turned
    head = model.lm_head.weight * _unfolded(decoder.norm) @ turned
    for layer in decoder.layers:
        attention, mlp = layer.self_attn, layer.mlp
        before_attention, before_mlp = _unfolded(layer.input_layernorm), _unfolded(layer.post_attention_layernorm)
        for part in (attention.q_proj, attention.k_proj, attention.v_proj):
            _set(part, part.weight * before_attention @ turned)
        for part in (mlp.gate_proj, mlp.up_proj):
            _set(part, part.weight * before_mlp @ turned)
        for part in (attention.o_proj, mlp.down_proj):
            _set(part, turned.T @ part.weight)
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
    size = attention.head_dim
    turned, width = rotation(size).float(), config.hidden_size
    values = attention.v_proj.weight.view(-1, size, width)
    _set(attention.v_proj, (turned.T @ values).reshape(-1, width))
    if attention.v_proj.bias is not None:
        attention.v_proj.bias.copy_((attention.v_proj.bias.view(-1, size) @ turned).flatten())
    reading = attention.o_proj.weight.view(width, -1, size)
    _set(attention.o_proj, (reading @ turned).reshape(width, -1))


def rotation(size: int) -> Tensor:
    """An orthogonal matrix (size, size), the same each time, that spreads every channel over all.

    Sylvester's Hadamard matrix for the power of two in `size`, a discrete cosine transform for the rest, random signs.
    """
    import torch

    power = size & -size
    rest = size // power
    hadamard = torch.ones(1, 1, dtype=torch.float64)
    while len(hadamard) < power:
        hadamard = torch.kron(hadamard, torch.tensor([[1, 1], [1, -1]], dtype=torch.float64))
    steps = torch.arange(rest, dtype=torch.float64)
    cosine = torch.cos(math.pi * (steps + 0.5) * steps[:, None] / rest) * math.sqrt(2 / rest)
    cosine[0] /= math.sqrt(2)
    signs = torch.randint(2, (size, 1), generator=torch.Generator().manual_seed(0)) * 2 - 1
    return signs * torch.kron(cosine, hadamard / math.sqrt(power))


def balance(layers: Sequence[Any], peaks: Sequence[Tensor]) -> None:
    """Scales channels between `up_proj` and `down_proj`, so that activations and weights have alike ranges.

    `peaks` are the largest activations of each channel in each layer.
    """
    for layer, peak in zip(layers, peaks, strict=True):
        up, down = layer.mlp.up_proj, layer.mlp.down_proj
        weights = down.weight.abs().amax(0).clamp_min(1e-5)
        scale = peak.clamp_min(1e-5) ** BALANCE / weights ** (1 - BALANCE)
        scale = (scale / scale.log().mean().exp()).clamp(1 / MOST_BALANCED, MOST_BALANCED)
        _set(up, up.weight / scale[:, None])
        _set(down, down.weight * scale)


def _set(part: Any, weight: Tensor) -> None:
    part.weight.copy_(weight)
