"""A shorter way through decoders on a CPU: what Llama and Qwen2 compute, without the Python of their modules.

vLLM walks some nine modules a layer, each a few microseconds, and goes through two operators that call back into Python
for attention. For a small model that is a third of a step. Here a step is one loop over C++ operators on the same
weights and the same cache. `obstacles` says where that would not be the same computation; there vLLM's own stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from vllm.config import VllmConfig
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import MergedColumnParallelLinear, QKVParallelLinear, RowParallelLinear
from vllm.model_executor.layers.rotary_embedding import Llama3RotaryEmbedding, RotaryEmbedding
from vllm.model_executor.models.llama import LlamaAttention, LlamaDecoderLayer, LlamaMLP, LlamaModel
from vllm.model_executor.models.qwen2 import Qwen2Attention, Qwen2DecoderLayer, Qwen2MLP, Qwen2Model
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl

log = logging.getLogger(f"parlance.{__name__}")

DECODERS: dict[type[Module], tuple[type[Module], ...]] = {
    LlamaModel: (LlamaDecoderLayer, LlamaAttention, LlamaMLP),
    Qwen2Model: (Qwen2DecoderLayer, Qwen2Attention, Qwen2MLP),
}
"""The exact types of a decoder that is known, and of its layers, their attention and their MLP. A subclass differs."""

ROTATIONS = (RotaryEmbedding, Llama3RotaryEmbedding)
"""They differ in the table of angles, which is read, and not in how it is applied."""

OPERATORS = (
    "fused_add_rms_norm",
    "rotary_embedding",
    "cpu_attn_reshape_and_cache",
    "cpu_attention_with_kv_cache",
    "silu_and_mul",
)
"""The names of the C++ operators that a layer takes, beside the products with its weights."""

Product = Callable[[Tensor], Tensor]


class Layer(NamedTuple):
    """What one layer computes with; `keys` and `values` are its parts of the cache."""

    name: str
    norm: Tensor
    qkv: Product
    keys: Tensor
    values: Tensor
    output: Product
    mlp_norm: Tensor
    gate_up: Product
    down: Product


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


def layer_of(module: Any) -> Layer:
    """The parts of a decoder layer of vLLM whose weights are loaded and whose cache is there."""
    attention, mlp = module.self_attn, module.mlp
    blocks, heads, block_size, _ = attention.attn.kv_cache.shape
    keys, values = attention.attn.kv_cache.view(blocks, heads, 2 * block_size, -1).chunk(2, dim=2)
    return Layer(
        attention.attn.layer_name,
        module.input_layernorm.weight.data,
        product_of(attention.qkv_proj),
        keys,
        values,
        product_of(attention.o_proj),
        module.post_attention_layernorm.weight.data,
        product_of(mlp.gate_up_proj),
        product_of(mlp.down_proj),
    )


def product_of(linear: Any) -> Product:
    """What `linear` computes on one processor, by the kernel that was chosen for its weights."""
    return partial(linear.quant_method.apply, linear, bias=linear.bias)


class ShortForward:
    """Takes the place of `forward` of one decoder. Steps without attention metadata go vLLM's own way."""

    def __init__(self, decoder: Any) -> None:
        self._original = decoder.forward
        self._embed = decoder.embed_input_ids
        self._layers = [layer_of(module) for module in decoder.layers]
        self._norm, self._epsilon = decoder.norm.weight.data, float(decoder.norm.variance_epsilon)
        first = decoder.layers[0].self_attn
        self._heads, self._kv_heads, self._head_size = first.num_heads, first.num_kv_heads, first.head_dim
        self._widths = [first.q_size, first.kv_size, first.kv_size]
        self._scale, self._isa = float(first.scaling), first.attn.isa
        rotation = first.rotary_emb
        self._operators = [getattr(torch.ops._C, name).default for name in OPERATORS]
        self._angles, self._is_neox = rotation.cos_sin_cache.to(self._norm.dtype), rotation.is_neox_style

    def __call__(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
        **others: Any,
    ) -> Any:
        """Hidden states (tokens, width)."""
        context = get_forward_context()
        if not isinstance(context.attn_metadata, dict) or intermediate_tensors is not None or others:
            return self._original(input_ids, positions, intermediate_tensors, inputs_embeds, **others)
        hidden = self._embed(input_ids) if inputs_embeds is None else inputs_embeds.clone()
        return self._compute(hidden, positions, context.attn_metadata, context.slot_mapping)

    def _compute(self, hidden: Tensor, positions: Tensor, steps: Any, slots: Any) -> Tensor:
        """The layers over `hidden`, which is overwritten."""
        add_norm, rotate, store, attend, activate = self._operators
        tokens, epsilon, size = hidden.shape[0], self._epsilon, self._head_size
        residual = torch.zeros_like(hidden)
        mixed = hidden.new_empty(tokens, self._heads, size)
        flat = mixed.view(tokens, -1)
        for layer in self._layers:
            step = steps[layer.name]
            add_norm(hidden, residual, layer.norm, epsilon)
            query, key, value = layer.qkv(hidden).split(self._widths, dim=1)
            rotate(positions, query, key, size, self._angles, self._is_neox)
            key, value = key.view(tokens, -1, size), value.view(tokens, -1, size)
            store(key, value, layer.keys, layer.values, slots[layer.name], self._isa)
            attend(
                query.view(tokens, -1, size), layer.keys, layer.values, mixed, step.query_start_loc, step.seq_lens,
                self._scale, step.causal, None, -1, step.block_table, 0.0, step.scheduler_metadata, None,
                step.dynamic_causal,
            )  # fmt: skip
            hidden = layer.output(flat)
            add_norm(hidden, residual, layer.mlp_norm, epsilon)
            gate_up = layer.gate_up(hidden)
            gated = gate_up.new_empty(tokens, gate_up.shape[1] // 2)
            activate(gated, gate_up)
            hidden = layer.down(gated)
        add_norm(hidden, residual, self._norm, epsilon)
        return hidden
