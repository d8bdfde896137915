"""What vLLM does on a CPU, in less time and memory.

Two things took a quarter of the start of a small model (benchmarks/speed/results/cold_start.md): filling a cache with
zeros that the kernel gives for nothing, and looking for kernels in modules that cannot have any. The rest is of steps:
C++ that vLLM has and does not use, and Python.
"""

from __future__ import annotations

import logging
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import chain
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode
from vllm import ir
from vllm.config import VllmConfig
from vllm.model_executor.kernels.linear.scaled_mm import cpu as scaled_mm
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import MergedColumnParallelLinear, QKVParallelLinear, RowParallelLinear
from vllm.model_executor.layers.rotary_embedding import Llama3RotaryEmbedding, RotaryEmbedding
from vllm.model_executor.models.llama import LlamaAttention, LlamaDecoderLayer, LlamaMLP, LlamaModel
from vllm.model_executor.models.qwen2 import Qwen2Attention, Qwen2DecoderLayer, Qwen2MLP, Qwen2Model
from vllm.platforms import current_platform
from vllm.renderers import hf
from vllm.triton_utils import dispatcher
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl

from models.llm.vllm_internals.steps import LANES, OPERATORS, ShortForward, add_norm, norm, silu_and_mul

log = logging.getLogger(f"parlance.{__name__}")

DECODERS: dict[type[Module], tuple[type[Module], ...]] = {
    LlamaModel: (LlamaDecoderLayer, LlamaAttention, LlamaMLP),
    Qwen2Model: (Qwen2DecoderLayer, Qwen2Attention, Qwen2MLP),
}
"""The exact types of a decoder that is known, and of its layers, their attention and their MLP. A subclass differs."""

ROTATIONS = (RotaryEmbedding, Llama3RotaryEmbedding)
"""They differ in the table of angles, which is read, and not in how it is applied."""
LARGE_BYTES = 1 << 24
"""Zeros of fewer bytes are allocated as torch does it."""
PROVIDER = "parlance"
"""The name of our implementations among those of vLLM's operators."""


@contextmanager
def replaced(module: ModuleType, name: str, replacement: Any) -> Iterator[None]:
    """`replacement` stands in `module` under `name` while the block runs.

    vLLM offers no argument for what is replaced here. Nothing else may load an engine in this process at the same time.
    """
    original = getattr(module, name)
    setattr(module, name, replacement)
    try:
        yield
    finally:
        setattr(module, name, original)


@contextmanager
def quick_tokenizers() -> Iterator[None]:
    """While a renderer is made, one copy of the tokenizer less is created.

    Replaces `hf.maybe_make_thread_pool`. The last copy is created on demand, when two threads need one.
    """
    make_pool = hf.maybe_make_thread_pool
    with replaced(hf, "maybe_make_thread_pool", lambda tokenizer, copies: make_pool(tokenizer, copies - 1)):
        yield


@contextmanager
def quick_core() -> Iterator[None]:
    """While an engine core is made in this thread, kernels are looked for in vLLM's own modules only.

    Replaces `dispatcher._rebind_kernels`, and inside it `dispatcher.sys`: without Triton, kernels in C++ take the place
    of vLLM's stand-ins, which only vLLM's own modules refer to.
    """
    rebind_everywhere = dispatcher._rebind_kernels

    def rebind(overrides: list[Any]) -> None:
        modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "vllm"}
        with replaced(dispatcher, "sys", SimpleNamespace(modules=modules)):
            rebind_everywhere(overrides)

    with replaced(dispatcher, "_rebind_kernels", rebind), _UntouchedZeros():
        yield


@contextmanager
def quick_steps(config: VllmConfig) -> Iterator[None]:
    """While a model is loaded, its parts take norms and SiLU in C++, and a kernel for int8 where there is VNNI.

    Replaces `SiluAndMul.forward_cpu`, and `scaled_mm.check_cpu_sgl_kernel`, which wants AMX where VNNI will do.
    """
    priority = config.kernel_config.ir_op_priority
    for name in register_norms():
        if getattr(priority, name) == ["native"]:  # as vLLM has it where the stanza says nothing
            setattr(priority, name, [PROVIDER, "native"])
    fits_amx = scaled_mm.check_cpu_sgl_kernel
    has_vnni = torch.cpu.get_capabilities().get("avx512_vnni") and config.model_config.dtype == torch.bfloat16

    def fits(rows: int, columns: int, dtype: torch.dtype) -> bool:
        fits_vnni = has_vnni and dtype == torch.int8 and columns % 32 == 0 and rows % 16 == 0
        return bool(fits_vnni) or fits_amx(rows, columns, dtype)

    with replaced(scaled_mm, "check_cpu_sgl_kernel", fits), replaced(SiluAndMul, "forward_cpu", silu_and_mul):
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


class _UntouchedZeros(TorchFunctionMode):
    """Large tensors of zeros in main memory become pages that take no memory until they are written to."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.zeros and set(kwargs) <= {"dtype", "device"} and len(args) == 1 and isinstance(args[0], int):
            device = torch.device(kwargs.get("device") or torch.get_default_device())
            if device.type == "cpu" and kwargs.get("dtype") is torch.int8 and args[0] >= LARGE_BYTES:
                return torch.frombuffer(mmap.mmap(-1, args[0]), dtype=torch.int8)
        return func(*args, **kwargs)


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
