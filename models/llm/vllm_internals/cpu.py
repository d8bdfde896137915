"""Shortens the steps of vLLM on a CPU: C++ that vLLM has and does not use, and a shorter forward."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from vllm import ir
from vllm.config import VllmConfig
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import MergedColumnParallelLinear, QKVParallelLinear, RowParallelLinear
from vllm.model_executor.layers.rotary_embedding import Llama3RotaryEmbedding, RotaryEmbedding
from vllm.model_executor.models.llama import LlamaAttention, LlamaDecoderLayer, LlamaMLP, LlamaModel
from vllm.model_executor.models.qwen2 import Qwen2Attention, Qwen2DecoderLayer, Qwen2MLP, Qwen2Model
from vllm.platforms import current_platform
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl

from models.llm.vllm_internals.loading import replaced
from models.llm.vllm_internals.steps import LANES, OPERATORS, ShortForward, add_norm, norm, silu_and_mul

log = logging.getLogger(f"parlance.{__name__}")

DECODERS: dict[type[Module], tuple[type[Module], ...]] = {
    LlamaModel: (LlamaDecoderLayer, LlamaAttention, LlamaMLP),
    Qwen2Model: (Qwen2DecoderLayer, Qwen2Attention, Qwen2MLP),
}
"""The exact types of a decoder that is known, and of its layers, their attention and their MLP. A subclass differs."""

ROTATIONS = (RotaryEmbedding, Llama3RotaryEmbedding)
"""They differ in the table of angles, which is read, and not in how it is applied."""
PROVIDER = "parlance"
"""The name of our implementations among those of vLLM's operators."""


@contextmanager
def quick_steps(config: VllmConfig) -> Iterator[None]:
    """While a model is loaded, its parts take norms and SiLU in C++.

    Replaces `SiluAndMul.forward_cpu`.
    """
    priority = config.kernel_config.ir_op_priority
    for name in register_norms():
        if getattr(priority, name) == ["native"]:  # as vLLM has it where the stanza says nothing
            setattr(priority, name, [PROVIDER, "native"])
    with replaced(SiluAndMul, "forward_cpu", silu_and_mul):
        yield


@cache
def register_norms() -> tuple[str, ...]:
    """The names of norms that are in C++ from here on, where vLLM's build has it; vLLM declares that for GPUs only."""

    def takes(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> bool:
        alike = weight is not None and weight.dtype == x.dtype and x.shape[-1] % LANES == 0
        return alike and variance_size is None and x.is_contiguous()

    def takes_sum(
        x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
    ) -> bool:
        return takes(x, weight, epsilon, variance_size) and x_residual.is_contiguous()

    current_platform.import_ir_kernels()
    if not hasattr(torch.ops._C, "fused_add_rms_norm"):
        return ()
    ir.ops.rms_norm.register_impl(PROVIDER, supports_args=takes)(norm)
    ir.ops.fused_add_rms_norm.register_impl(PROVIDER, supports_args=takes_sum, inplace=True)(add_norm)
    return "rms_norm", "fused_add_rms_norm"


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
    """Returns what an engine is set up to do that the short forward does not."""
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
    """Returns what `decoder` computes that the short forward does not."""
    kinds = DECODERS[type(decoder)]
    if decoder.aux_hidden_state_layers:
        yield "hidden states of layers are wanted"
    first = decoder.layers[0].self_attn
    for layer in decoder.layers:
        attention, mlp = layer.self_attn, layer.mlp
        expected = {
            decoder.norm: RMSNorm,
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
        yield from (f"a part is of type {name}" for name in others)
        if not isinstance(mlp.act_fn, SiluAndMul):
            yield "its activation is not SiLU"
        if attention.rotary_emb is not first.rotary_emb or type(first.rotary_emb) not in ROTATIONS:
            yield f"positions are of type {type(attention.rotary_emb).__name__}"
        if getattr(attention, "qk_norm", False):
            yield "queries and keys are normalised"
        if not others:
            yield from obstacles_of_attention(attention.attn)


def obstacles_of_attention(attention: Any) -> Iterator[str]:
    """Returns what `attention` does that the short forward does not."""
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
