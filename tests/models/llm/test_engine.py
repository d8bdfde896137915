"""Effects of a start on its process, arguments, known architectures, and an engine in a process of its own."""

import asyncio
import dataclasses
import gc
import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import pytest

from docs.made.panels import VLLM
from models.cpu import fitting_dtype
from models.llm import arguments, engine
from models.llm.engine import _uncollected, fitted
from models.weights import store as weights
from models.weights.files import WeightsError
from tests.docs.pages import ROOT
from tests.waiting import WITHIN_S, until


@pytest.mark.parametrize("before", [True, False])
def test_the_collector_runs_on_as_it_did(before: bool) -> None:
    was = gc.isenabled()
    (gc.enable if before else gc.disable)()
    try:
        with suppress(RuntimeError), _uncollected():
            assert not gc.isenabled()
            raise RuntimeError("the engine does not load")
        assert gc.isenabled() == before
    finally:
        gc.unfreeze()
        (gc.enable if was else gc.disable)()


def test_what_was_loaded_is_not_looked_through_again() -> None:
    before = gc.get_freeze_count()
    with _uncollected():
        loaded = [[] for _ in range(1000)]
    try:
        assert gc.get_freeze_count() >= before + len(loaded)
        assert not any(found is loaded for found in gc.get_objects())
    finally:
        gc.unfreeze()


BFLOAT16 = {"dtype": "bfloat16", "kv_cache_memory_bytes": 1 << 28, "max_num_seqs": 4}
FLOAT32 = BFLOAT16 | {"dtype": "float32", "kv_cache_memory_bytes": 1 << 29}


def test_the_dtype_fits_the_device_and_the_cache_holds_as_many_tokens() -> None:
    assert fitted(BFLOAT16, "cpu") == (FLOAT32 if fitting_dtype("bfloat16", "cpu") == "float32" else BFLOAT16)
    for device, dtype in (("cuda", "bfloat16"), *product(("cpu", "cuda"), ("float32", "auto"))):
        assert fitted(BFLOAT16 | {"dtype": dtype}, device) == BFLOAT16 | {"dtype": dtype}
    assert (fitting_dtype("float16", "cpu"), fitting_dtype("float16", "cuda")) == ("float32", "float16")


needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed here")
RIGHT: dict[str, Any] = {
    "dtype": "bfloat16", "max_num_seqs": 16, "enforce_eager": True, "gpu_memory_utilization": 1,
    "tokenizer": "elsewhere", "kv_cache_memory_bytes": 1 << 27, "hf_overrides": {"head_dtype": "float32"},
    "limit_mm_per_prompt": {"image": 2},
}  # fmt: skip


@needs_vllm
def test_right_arguments_are_left_alone_and_a_wrong_one_is_named() -> None:
    assert arguments.check(RIGHT) is RIGHT
    unknown, wrong = "vLLM has no engine argument", "engine argument"
    for said, complaint in (
        ({"max_num_seq": 16}, f"{unknown} `max_num_seq`; did you mean `max_num_seqs`?"),
        ({"zzz": 16}, f"{unknown} `zzz`"),
        ({"max_num_seqs": "16"}, f"{wrong} `max_num_seqs` must be `int | None`, not str"),
        ({"max_num_seqs": True}, f"{wrong} `max_num_seqs` must be `int | None`, not bool"),
        ({"enforce_eager": "true"}, f"{wrong} `enforce_eager` must be `bool`, not str"),
        ({"enforce_eager": 1}, f"{wrong} `enforce_eager` must be `bool`, not int"),
        ({"seed": 0.5}, f"{wrong} `seed` must be `int`, not float"),
        ({"gpu_memory_utilization": "0.5"}, f"{wrong} `gpu_memory_utilization` must be `float`, not str"),
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
            arguments.check(RIGHT | said)
        assert str(caught.value) == complaint
    with pytest.raises(ValueError, match="`weights` of the stanza sets it"):
        arguments.check({"model": "/weights"})


@needs_vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_what_is_read_from_the_source_is_what_vllm_takes() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    assert set(arguments.installed()) == {field.name for field in dataclasses.fields(AsyncEngineArgs)}


def test_where_vllm_is_not_installed_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments.installed.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert arguments.check({"zzz": 1}) == {"zzz": 1}
    arguments.installed.cache_clear()


def start(folder: Path, architecture: str, model_type: str) -> None:
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], "model_type": model_type}))
    engine.start(engine.EngineSpec(folder, 1024, {"enforce_eager": True}, threads=1))


@pytest.mark.parametrize("model_type", ["gemma9", "qwen3"])
def test_an_architecture_that_vllm_does_not_know_is_named(tmp_path: Path, model_type: str) -> None:
    with pytest.raises(WeightsError, match=r"`Gemma9ForEverything`, which vLLM \S+ does not know; name other weights"):
        start(tmp_path, "Gemma9ForEverything", model_type)


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is not None, reason="here it could be loaded")
def test_what_needs_a_package_that_a_cpu_has_not_says_so(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="`Qwen3_5ForConditionalGeneration`: torchvision is missing"):
        start(tmp_path, "Qwen3_5ForConditionalGeneration", "qwen3_5")


# An engine in a process of its own


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
    llm.shutdown(timeout=WITHIN_S)


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
