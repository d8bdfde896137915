"""The layers of BERT and its kin on a CPU, without the Python of their modules.

A short text is little work in many small steps: transformers walks some twelve modules a layer, and torch lays out the
weights of each product again in each call, as the processor wants them. Here a layer is one product for query, key and
value, one call for attention, and three products with what follows them (bias, GELU, residual) in the same operator,
on weights that were laid out once. The operators are those that torch's compiler emits for such layers on x86.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, scaled_dot_product_attention
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from models.cpu import has_layouts

log = logging.getLogger(f"parlance.{__name__}")

KINDS = ("bert", "roberta", "xlm-roberta", "camembert")
"""Architectures of transformers with layers that compute what is computed here."""


class Linear(NamedTuple):
    """A product: its weight, laid out for the processor, and its bias."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, *parts: nn.Linear) -> Linear:
        """Several parts are one product, with their outputs one after the other."""
        weight = torch.cat([part.weight.data for part in parts])
        bias = torch.cat([part.bias.data for part in parts])
        return cls(torch.ops.mkldnn._reorder_linear_weight(weight), bias)


class EncoderLayer(NamedTuple):
    """Parameters of one layer."""

    qkv: Linear
    output: Linear
    norm: nn.LayerNorm
    up: Linear
    down: Linear
    last_norm: nn.LayerNorm

    @classmethod
    def of(cls, module: Any) -> EncoderLayer:
        attention = module.attention
        reads = attention.self
        return cls(
            Linear.of(reads.query, reads.key, reads.value),
            Linear.of(attention.output.dense),
            attention.output.LayerNorm,
            Linear.of(module.intermediate.dense),
            Linear.of(module.output.dense),
            module.output.LayerNorm,
        )


def shorten(network: Any) -> None:
    """Replaces the layers of `network`, of transformers and on a CPU, where they are of a kind that is known."""
    base = network.base_model
    if reason := _reason_against(base):
        log.info("the layers of %s run as transformers has them: %s", type(network).__name__, reason)
        return
    base.encoder.forward = ShortLayers(base.encoder.layer, base.config.num_attention_heads)
    base.encoder.layer = nn.ModuleList()  # whose weights have been copied


def _reason_against(base: Any) -> str:
    """Returns why the layers of `base` stay; empty if nothing speaks against."""
    config = base.config
    if config.model_type not in KINDS:
        return f"the architecture {config.model_type} is not known here"
    if config.is_decoder or config.hidden_act != "gelu" or config._attn_implementation != "sdpa":
        return "its configuration asks for something else than an encoder with GELU"
    if base.dtype not in (torch.bfloat16, torch.float32):
        return f"no products were measured in {base.dtype}"
    if not has_layouts(base.dtype):
        return f"torch has no layout of weights in {base.dtype} for this processor"
    return ""


class ShortLayers:
    """Takes the place of `forward` of an encoder."""

    def __init__(self, layers: nn.ModuleList, heads: int) -> None:
        self._layers = [EncoderLayer.of(module) for module in layers]
        self._heads = heads

    def __call__(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Hidden states (texts, tokens, width) after the last layer. The mask is one that attention broadcasts."""
        texts, tokens, width = hidden_states.shape
        by_head = (texts, tokens, 3, self._heads, width // self._heads)
        product = torch.ops.mkldnn._linear_pointwise
        hidden = hidden_states.reshape(-1, width)
        for layer in self._layers:
            qkv = product(hidden, *layer.qkv, "none", [], "")
            query, key, value = qkv.view(by_head).permute(2, 0, 3, 1, 4).unbind(0)
            mixed = scaled_dot_product_attention(query, key, value, attn_mask=attention_mask)
            mixed = mixed.transpose(1, 2).reshape(-1, width)
            hidden = _norm(layer.norm, product.binary(mixed, hidden, *layer.output, "add"))
            risen = product(hidden, *layer.up, "gelu", [], "none")
            hidden = _norm(layer.last_norm, product.binary(risen, hidden, *layer.down, "add"))
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden.view(texts, tokens, width))


def _norm(part: nn.LayerNorm, x: Tensor) -> Tensor:
    return layer_norm(x, part.normalized_shape, part.weight, part.bias, part.eps)
