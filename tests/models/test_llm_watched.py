"""An engine process that hangs is noticed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from models.llm import engine, pulse
from models.weights import store as weights

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(300),
    # What vLLM and torch say about themselves while they are imported.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


class SilentCore:
    """Gives an output whenever it is told to."""

    def __init__(self) -> None:
        self.outputs: asyncio.Queue[str] = asyncio.Queue()

    async def get_output_async(self) -> str:
        return await self.outputs.get()


async def test_silence_counts_only_while_there_is_work(monkeypatch: pytest.MonkeyPatch) -> None:
    core = SilentCore()
    watch = pulse.Pulse(core)
    watch.moved_at_s -= pulse.STALL_S + 1
    watch.check(has_work=False)
    watch.check(has_work=True)
    watch.moved_at_s -= pulse.STALL_S + 1
    with pytest.raises(RuntimeError, match="returned nothing for 60 s"):
        watch.check(has_work=True)
    core.outputs.put_nowait("one")
    assert await core.get_output_async() == "one"
    watch.check(has_work=True)


@pytest.fixture
async def stopped(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """A real engine in processes of its own, all of which are stopped while a request is under way."""
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    arguments = {"dtype": "float32", "enforce_eager": True, "kv_cache_memory_bytes": 1 << 26, "max_num_seqs": 2}
    path = weights.ensure("smollm2-135m-instruct")
    llm = await asyncio.to_thread(engine.start, engine.EngineSpec(path, 128, arguments, threads=1, in_process=False))
    pids = [process.pid for process in llm.engine_core.resources.engine_manager.processes]  # type: ignore[attr-defined]
    yield llm, pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    llm.shutdown()


@pytest.mark.slow
async def test_engine_process_that_hangs_fails_its_health_check(stopped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm import SamplingParams

    monkeypatch.setattr(pulse, "STALL_S", 2.0)
    llm, pids = stopped
    await llm.check_health()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)

    async def ask() -> None:
        async for _ in llm.generate("hello", SamplingParams(max_tokens=4), "one"):
            pass

    asking = asyncio.create_task(ask())

    async def until_unwell() -> None:
        while True:
            await llm.check_health()
            await asyncio.sleep(0.1)

    with pytest.raises(RuntimeError, match="returned nothing"):
        await until_unwell()
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    await asking
    await llm.check_health()
