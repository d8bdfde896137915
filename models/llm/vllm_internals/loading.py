"""Leaves out or shares parts while vLLM loads an engine in this process. Nothing else may load one meanwhile.

Most of the start of a small model was a tokenizer that is loaded again and again, a cache filled with zeros that the
kernel gives for nothing, and kernels looked for in modules that cannot have any
(benchmarks/speed/results/cold_start.md). A third of its memory was two copies of the embedding
(benchmarks/speed/results/memory.md).
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import Module
from transformers import TokenizersBackend
from vllm.config import VllmConfig
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod, VocabParallelEmbedding
from vllm.platforms import current_platform
from vllm.renderers import hf
from vllm.triton_utils import dispatcher

from models.llm.vllm_internals.cache import Pages


@contextmanager
def replaced(module: Any, name: str, replacement: Any) -> Iterator[None]:
    """`replacement` stands in `module` under `name` while the block runs.

    vLLM offers no argument for what is replaced.
    """
    original = getattr(module, name)
    setattr(module, name, replacement)
    try:
        yield
    finally:
        setattr(module, name, original)


@contextmanager
def quick_tokenizers() -> Iterator[None]:
    """While a renderer is made, all its tokenizers are the one that the library below has loaded, and read it once.

    Copies are for threads that cut texts in different ways, which changes the tokenizer that they use. Here tokens
    are cut instead (`CutAtTop`), so nothing changes what is shared. A second thread still gets its own copy.
    """
    make_pool = hf.maybe_make_thread_pool

    @cache
    def vocabulary_of(backend: Tokenizer) -> dict[str, int]:
        return dict(backend.get_vocab(with_added_tokens=True))

    copyreg.pickle(Tokenizer, lambda _: "itself")  # what is reduced to a string is its own copy
    try:
        with (
            replaced(hf, "maybe_make_thread_pool", lambda tokenizer, _: make_pool(tokenizer, 1)),
            replaced(TokenizersBackend, "get_vocab", lambda tokenizer: vocabulary_of(tokenizer.backend_tokenizer)),
        ):
            yield
    finally:
        del copyreg.dispatch_table[Tokenizer]


@contextmanager
def quick_core() -> Iterator[Pages]:
    """While an engine core is made in this thread, kernels are looked for in vLLM's own modules only.

    Gives the pages that its cache is made of.

    Replaces `dispatcher._rebind_kernels`, and inside it `dispatcher.sys`: without Triton, kernels in C++ take the place
    of vLLM's stand-ins, which only vLLM's own modules refer to. And embeddings are laid out for products once there is
    one, for which it replaces `UnquantizedEmbeddingMethod.process_weights_after_loading`.
    """
    rebind_everywhere = dispatcher._rebind_kernels

    def rebind(overrides: list[Any]) -> None:
        modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "vllm"}
        with replaced(dispatcher, "sys", SimpleNamespace(modules=modules)):
            rebind_everywhere(overrides)

    with (
        replaced(dispatcher, "_rebind_kernels", rebind),
        replaced(UnquantizedEmbeddingMethod, "process_weights_after_loading", _lay_out_later),
        Pages() as pages,
    ):
        yield pages


def _lay_out_later(_: UnquantizedEmbeddingMethod, layer: Any) -> None:
    """On a CPU, `layer` is copied into the layout of products at its first product. Only a head ever has one."""

    def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        dispatch_cpu_unquantized_gemm(layer, remove_weight=False)  # puts another in the place of this function
        product: Tensor = layer.cpu_linear(x, weight, bias)
        return product

    if current_platform.is_cpu():
        layer.cpu_linear = multiply


def map_embeddings(config: VllmConfig, model: Module) -> None:
    """Has embeddings of `model` read rows from the files of its weights, unless a head in another dtype uses them.

    Rows that no text needs are never read, and the kernel may take the others back, for the files have them.
    """
    is_tied = config.model_config.hf_text_config.tie_word_embeddings
    parts = {f"{name}.weight": part for name, part in model.named_modules() if type(part) is VocabParallelEmbedding}
    for file in Path(config.model_config.model).glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            for name in parts.keys() & set(tensors.keys()):
                loaded, filed = parts[name].weight, tensors.get_tensor(name)
                if (loaded.device, loaded.shape) != (filed.device, filed.shape):
                    continue
                if loaded.dtype == filed.dtype:
                    loaded.data = filed
                elif not is_tied:
                    parts[name].register_forward_hook(lambda _part, _inputs, rows, dtype=loaded.dtype: rows.to(dtype))
                    loaded.data = filed
