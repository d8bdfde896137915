"""Effects of a start on its process, arguments of the engine, and known architectures."""

from __future__ import annotations

import dataclasses
import gc
import importlib.util
import json
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from models.cpu import fitting_dtype
from models.llm import arguments, engine
from models.llm.engine import _uncollected, fitted
from models.weights.files import WeightsError


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
    with _uncollected():
        loaded = [[] for _ in range(1000)]
    try:
        assert gc.get_freeze_count() >= len(loaded)
        assert not any(found is loaded for found in gc.get_objects())
    finally:
        gc.unfreeze()


BFLOAT16 = {"dtype": "bfloat16", "kv_cache_memory_bytes": 1 << 28, "max_num_seqs": 4}


def test_a_cpu_without_bfloat16_runs_in_float32_with_as_many_tokens_in_the_cache() -> None:
    given = fitted(BFLOAT16, "cpu")
    if fitting_dtype("bfloat16", "cpu") == "bfloat16":
        assert given == BFLOAT16
    else:
        assert given == {"dtype": "float32", "kv_cache_memory_bytes": 1 << 29, "max_num_seqs": 4}


def test_gpus_and_what_every_processor_has_get_what_the_stanza_says_and_float16_is_never_emulated() -> None:
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
