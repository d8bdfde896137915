"""The cache of a CPU takes no memory before it is used, and none while the engine rests."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import mmap
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models.llm import engine
from models.llm.engine import prepare_environment
from tests.twins import decoders
from tests.waiting import until

CACHE_BYTES = 1 << 26
REST_S = 1.0
PROMPT = [7 + 31 * index for index in range(90)]
LOGGER = "parlance.models.llm.vllm_internals.cache"


@pytest.fixture(scope="module")
def cache() -> Any:
    for name in ("torch", "vllm"):
        pytest.importorskip(name)
    prepare_environment(True, True, 2)
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


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [(((1 << 24) - 1,), "int8"), ((1 << 24,), "float32"), ((2, 1 << 24), "int8"), ((3,), "bfloat16")],
)
def test_other_zeros_are_torchs_own(
    cache: Any, shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(cache.mmap, "mmap")
    with cache.Pages():
        zeros = cache.torch.zeros(*shape, dtype=getattr(cache.torch, dtype))
    assert tuple(zeros.shape) == shape
    assert zeros.dtype == getattr(cache.torch, dtype)
    assert not zeros.any()


@pytest.mark.parametrize(("forgets", "emptied"), [(True, 1), (False, 0)])
def test_pages_that_a_request_still_needs_stay(cache: Any, forgets: bool, emptied: int) -> None:
    calls: list[str] = []
    core = SimpleNamespace(reset_prefix_cache=lambda: forgets)
    cache.rest(core, SimpleNamespace(empty=lambda: calls.append("empty")))
    assert len(calls) == emptied


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


def test_without_a_time_silence_is_not_told(cache: Any) -> None:
    commands = cache.Commands(None, lambda: pytest.fail("told"))
    threading.Timer(0.2, commands.put, [None]).start()
    assert commands.next() is None


@pytest.fixture
async def llm(cache: Any, tmp_path: Path) -> AsyncIterator[Any]:
    arguments = {"enforce_eager": True, "max_num_seqs": 4, "kv_cache_memory_bytes": CACHE_BYTES, "dtype": "float32"}
    spec = engine.EngineSpec(decoders.qwen2(tmp_path), 256, arguments, threads=2, rest_s=REST_S)
    llm = await asyncio.to_thread(engine.start, spec)
    yield llm
    llm.shutdown()


async def test_an_engine_at_rest_gives_its_cache_back_and_answers_as_before(
    llm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (pages,) = llm.engine_core._pages._mapped
    with caplog.at_level(logging.INFO, LOGGER):
        first, again = await answer(llm), await answer(llm)
        await until(lambda: sum("at rest" in each for each in caplog.messages) >= 1)
        assert not any(pages[place] for place in range(0, CACHE_BYTES, 64))
        rested = await answer(llm)
        assert any(pages[place] for place in range(0, CACHE_BYTES, 64))
        await until(lambda: sum("at rest" in each for each in caplog.messages) >= 2)
    assert first.outputs[0].token_ids == again.outputs[0].token_ids == rested.outputs[0].token_ids
    assert (again.num_cached_tokens > 0, rested.num_cached_tokens) == (True, 0)


async def answer(llm: Any) -> Any:
    from vllm.inputs import tokens_input
    from vllm.sampling_params import SamplingParams

    params = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
    async for output in llm.generate(tokens_input(PROMPT), params, f"{asyncio.get_running_loop().time()}"):
        last = output
    return last
