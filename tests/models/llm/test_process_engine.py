"""An engine process that hangs is noticed."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from docs.made.panels import VLLM
from models.llm import engine
from models.weights import store as weights
from tests.docs.pages import ROOT
from tests.waiting import until


class SilentCore:
    def __init__(self) -> None:
        self.outputs: asyncio.Queue[str] = asyncio.Queue()

    async def get_output_async(self) -> str:
        return await self.outputs.get()


async def test_silence_counts_only_while_there_is_work() -> None:
    pytest.importorskip("vllm")
    engine.prepare_environment(True, True, 2)
    from models.llm.vllm_internals.process_engine import SILENCE_S, OutputWatch

    core = SilentCore()
    watch = OutputWatch(core)

    def be_silent() -> None:
        watch.silences.started_s = {key: start - SILENCE_S - 1 for key, start in watch.silences.started_s.items()}

    watch.check(has_work=True)
    be_silent()
    watch.check(has_work=False)
    watch.check(has_work=True)
    be_silent()
    with pytest.raises(RuntimeError, match="returned nothing for 60 s"):
        watch.check(has_work=True)
    core.outputs.put_nowait("one")
    assert await core.get_output_async() == "one"
    watch.check(has_work=True)


def test_vllm_has_the_metrics_that_dashboards_show() -> None:
    pytest.importorskip("vllm")
    engine.prepare_environment(True, True, 2)
    from vllm.v1.metrics import loggers

    from models.llm.vllm_internals.process_engine import statistics

    (kind,) = statistics()
    assert issubclass(kind, loggers.PrometheusStatLogger), "vLLM adds one of its own where none is of this kind"
    source = inspect.getsource(loggers.PrometheusStatLogger)
    assert [name for name in VLLM if f'"vllm:{name}"' not in source] == []


@pytest.fixture
async def stopped(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
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
async def test_an_engine_process_tells_rays_metrics_what_vllm_counts(
    stopped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.util import metrics
    from vllm import SamplingParams

    llm, _ = stopped
    told: dict[str, list[dict[str, str]]] = defaultdict(list)
    for kind, verb in ((metrics.Counter, "inc"), (metrics.Gauge, "set"), (metrics.Histogram, "observe")):
        monkeypatch.setattr(kind, verb, lambda self, value=1, tags=None: told[self.info["name"]].append(tags))
    async for _ in llm.generate("hello", SamplingParams(max_tokens=4), "one"):
        pass
    for name in VLLM:
        tagged = told[f"vllm_{name}"]
        assert {(tags["model_name"], tags["engine"]) for tags in tagged} == {("smollm2-135m-instruct", "0")}, name


@pytest.mark.slow
async def test_engine_process_that_hangs_fails_its_health_check(stopped: Any) -> None:
    from vllm import SamplingParams

    llm, pids = stopped
    llm.watch.silences.most_s = 2.0
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


ENGINE = """
import os, signal, sys
from pathlib import Path
from models.llm import engine

if __name__ == "__main__":
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    arguments = {"dtype": "float32", "enforce_eager": True, "kv_cache_memory_bytes": 1 << 26, "max_num_seqs": 2}
    spec = engine.EngineSpec(Path(sys.argv[1]), 128, arguments, threads=1, in_process=False)

    import asyncio, psutil

    async def main():
        llm = await asyncio.to_thread(engine.start, spec)
        print("children", *(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main())
"""


@pytest.mark.slow
async def test_no_process_of_an_engine_outlives_a_replica_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(ENGINE)
    path = weights.ensure("smollm2-135m-instruct")
    finished = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, program, path],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    line = next(line for line in finished.stdout.splitlines() if line.startswith("children"))
    children = [int(word) for word in line.split()[1:]]
    assert children
    await until(lambda: not any(psutil.pid_exists(child) for child in children))
