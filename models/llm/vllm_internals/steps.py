"""Code of each step on a CPU: a short forward, and the choice of threads for the next steps.

The forward computes what Llama and Qwen2 compute, without the Python of their modules. vLLM walks some nine modules a
layer, each a few microseconds, and goes through two operators that call back into Python for attention. Here a step is
one loop over C++ operators on the same weights and the same cache. `cpu.py` says where it fits.

A step may take all threads that the stanza allows while the cores are free, and one where they are shared. It is some
two hundred parallel regions, and each waits for its slowest thread. Beside one busy process on two cores, two threads
were 7 to 20 times slower than one (measured), while on quiet cores they are faster. So the number follows what the
kernel says: how long our threads stood in line, and how much of the machine is idle. Where the kernel does not say (not
Linux), the number stays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from vllm.forward_context import get_forward_context

CHECK_S = 0.5
"""Seconds between two looks; a look reads one small file for each thread."""
CROWDED = 0.6
"""Share of the time that our threads waited for a core, above which one thread is better.

On two cores, what serves an answer besides (ingress, proxy, cluster: 0.3 cores) makes two threads wait for 0.25 to 0.45
together. A process that never sleeps adds a third runnable thread, so each waits a third of the time: 0.67.
"""
FREE_CORES = 0.4
"""Idle cores for each further thread, above which more are tried. Beside one thread and the graph 0.75 are idle."""
TASKS = Path("/proc/self/task")
STAT = Path("/proc/stat")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
LANES = 32
"""The C++ operators work on whole registers: widths of 32 numbers fill those of every type."""
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
    """Parameters of one layer; `keys` and `values` are its parts of the cache."""

    name: str
    norm: Tensor
    qkv: Product
    keys: Tensor
    values: Tensor
    output: Product
    mlp_norm: Tensor
    gate_up: Product
    down: Product


def layer_of(module: Any) -> Layer:
    """The parts of a decoder layer of vLLM after its weights are loaded and its cache is allocated."""
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


def product_of(part: Any) -> Product:
    """Returns the product of `part` on one processor, by the kernel that was chosen for its weights."""
    method = part.quant_method
    if turn := getattr(method, "turn", None):
        multiply = _product_of(part, method.original)
        return lambda x: multiply(turn(x))
    return _product_of(part, method)


def _product_of(part: Any, method: Any) -> Product:
    if hasattr(part, "int8_product"):
        return partial(part.int8_product, bias=part.bias)
    if getattr(part.weight, "dtype", None) == torch.int8:  # packed; other kernels take the weights away
        multiply = torch.ops._C.int8_scaled_mm_with_quant.default
        weight, scale, bias = part.weight.data, part.weight_scale.data, getattr(part, "bias_fp32", None)
        return lambda x: multiply(x, weight, scale, bias, x.dtype, True)
    return partial(method.apply, part, bias=part.bias)


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


def silu_and_mul(part: Any, x: Tensor) -> Tensor:
    """SiLU of the first half of `x` (..., 2 n) times the second: (..., n)."""
    width = x.shape[-1] // 2
    if width % LANES or not x.is_contiguous() or not hasattr(torch.ops._C, "silu_and_mul"):
        return part.forward_native(x)
    product = x.new_empty(*x.shape[:-1], width)
    torch.ops._C.silu_and_mul(product, x)
    return product


def norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    """Computes vLLM's `rms_norm` in C++."""
    normed = torch.empty_like(x)
    torch.ops._C.rms_norm(normed, x, weight, epsilon)
    return normed


def add_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Computes vLLM's `fused_add_rms_norm` in C++ and in place."""
    torch.ops._C.fused_add_rms_norm(x, x_residual, weight, epsilon)
    return x, x_residual


class ThreadGovernor:
    """Decides between 1 and `most` threads. Called by the thread that computes, after each step.

    `set_threads` sets their number for the thread that calls it.
    """

    def __init__(self, most: int, set_threads: Callable[[int], None]) -> None:
        self._set_threads = set_threads
        self._most = self.threads = most
        self._figures = self._look()
        set_threads(most)

    def after_step(self) -> None:
        """Looks, if it is time, and changes the number of threads for the steps that follow."""
        if self._most == 1 or time.monotonic() - self._figures[0] < CHECK_S:
            return
        before, self._figures = self._figures, self._look()
        passed, waited, idle = (now - then for now, then in zip(self._figures, before, strict=True))
        target = target_threads(self.threads, self._most, waited / passed, idle / passed)
        if target != self.threads:
            self.threads = target
            self._set_threads(target)

    def _look(self) -> tuple[float, float, float]:
        """The time, seconds that our threads have waited for a core, and idle seconds of all cores."""
        return time.monotonic(), waited_s(), idle_s()


def target_threads(threads: int, most: int, waiting: float, idle_cores: float) -> int:
    """The next number of threads, from the share of time spent waiting and the cores that were idle."""
    if threads > 1:
        return 1 if waiting > CROWDED else threads
    return most if idle_cores > FREE_CORES * (most - 1) else 1


def waited_s() -> float:
    """Seconds that the threads of this process were ready to run and had no core; 0 where the kernel does not say."""
    total_ns = 0
    for task in os.listdir(TASKS) if TASKS.is_dir() else ():
        try:
            total_ns += int((TASKS / task / "schedstat").read_text().split()[1])
        except (OSError, IndexError):
            continue  # a thread that has just ended
    return total_ns / 1e9


def idle_s() -> float:
    """Idle seconds of all cores since the machine started; 0 where the kernel does not say."""
    try:
        return int(STAT.read_text().split(maxsplit=5)[4]) / TICKS_PER_S
    except (OSError, IndexError):
        return 0.0
