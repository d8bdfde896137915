"""Which decoders take the short forward of `steps.py`: those that compute what it computes, part by part.

`obstacles` says where that would not be the same computation; there vLLM's own stays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch.nn import Module
from vllm.config import VllmConfig
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import MergedColumnParallelLinear, QKVParallelLinear, RowParallelLinear
from vllm.model_executor.layers.rotary_embedding import Llama3RotaryEmbedding, RotaryEmbedding
from vllm.model_executor.models.llama import LlamaAttention, LlamaDecoderLayer, LlamaMLP, LlamaModel
from vllm.model_executor.models.qwen2 import Qwen2Attention, Qwen2DecoderLayer, Qwen2MLP, Qwen2Model
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl

from models.llm.vllm_internals.steps import OPERATORS, ShortForward

log = logging.getLogger(f"parlance.{__name__}")

DECODERS: dict[type[Module], tuple[type[Module], ...]] = {
    LlamaModel: (LlamaDecoderLayer, LlamaAttention, LlamaMLP),
    Qwen2Model: (Qwen2DecoderLayer, Qwen2Attention, Qwen2MLP),
}
"""The exact types of a decoder that is known, and of its layers, their attention and their MLP. A subclass differs."""

ROTATIONS = (RotaryEmbedding, Llama3RotaryEmbedding)
"""They differ in the table of angles, which is read, and not in how it is applied."""


def shorten(config: VllmConfig, model: Module) -> None:
    """Gives `model` the short forward where it fits, and says in the log which way was taken and why."""
    decoders = [part for part in model.modules() if type(part) in DECODERS]
    if not decoders:
        log.info("steps take vLLM's own forward: the decoder of %s is not one that is known", type(model).__name__)
    for decoder in decoders:
        obstacle = next(chain(obstacles_of_setup(config), obstacles(decoder)), None)
        if obstacle:
            log.info("steps take vLLM's own forward: %s", obstacle)
        else:
            decoder.forward = ShortForward(decoder)
            log.info("steps take the short forward through %d layers", len(decoder.layers))


def obstacles_of_setup(config: VllmConfig) -> Iterator[str]:
    """What an engine is set up to do, and the short forward does not."""
    does = {
        "vLLM has no C++ for this processor": not all(hasattr(torch.ops._C, name) for name in OPERATORS),
        "it serves LoRA adapters": config.lora_config,
        "it speculates": config.speculative_config,
        "it hands its cache to others": config.kv_transfer_config,
        "its cache is quantised": config.cache_config.cache_dtype not in ("auto", "bfloat16", "float16", "float32"),
        "it compiles": not config.model_config.enforce_eager,
        "it runs in several parts": config.parallel_config.world_size > 1,
    }
    return (sentence for sentence, is_so in does.items() if is_so)


def obstacles(decoder: Any) -> Iterator[str]:
    """What `decoder` computes, and the short forward does not."""
    kinds = DECODERS[type(decoder)]
    if decoder.aux_hidden_state_layers:
        yield "hidden states of layers are wanted"
    if type(decoder.norm) is not RMSNorm:
        yield f"its last norm is of type {type(decoder.norm).__name__}"
    first = decoder.layers[0].self_attn
    for layer in decoder.layers:
        attention, mlp = layer.self_attn, layer.mlp
        expected = {
            layer: kinds[0],
            attention: kinds[1],
            mlp: kinds[2],
            attention.qkv_proj: QKVParallelLinear,
            attention.o_proj: RowParallelLinear,
            mlp.gate_up_proj: MergedColumnParallelLinear,
            mlp.down_proj: RowParallelLinear,
            attention.attn: Attention,
            attention.attn.impl: CPUAttentionBackendImpl,
            layer.input_layernorm: RMSNorm,
            layer.post_attention_layernorm: RMSNorm,
        }
        others = [type(part).__name__ for part, kind in expected.items() if type(part) is not kind]
        yield from (f"a part of a layer is of type {name}" for name in others)
        if not isinstance(mlp.act_fn, SiluAndMul):
            yield "its activation is not SiLU"
        if attention.rotary_emb is not first.rotary_emb or type(first.rotary_emb) not in ROTATIONS:
            yield f"positions are of type {type(attention.rotary_emb).__name__}"
        if getattr(attention, "qk_norm", False):
            yield "queries and keys are normalised"
        if not others:
            yield from obstacles_of_attention(attention.attn)


def obstacles_of_attention(attention: Any) -> Iterator[str]:
    """What `attention` does, and the short forward does not."""
    kernel = attention.impl
    does = {
        "attention slides": attention.sliding_window is not None or kernel.sliding_window != -1,
        "attention has sinks": kernel.sinks is not None,
        "attention has slopes": kernel.alibi_slopes is not None,
        "attention is capped": kernel.logits_soft_cap,
        "attention goes both ways": attention.attn_type != AttentionType.DECODER,
        "layers share a cache": attention.kv_sharing_target_layer_name,
        "its cache is quantised": kernel.is_fp8_kv_cache or attention.query_quant,
    }
    return (sentence for sentence, is_so in does.items() if is_so)
