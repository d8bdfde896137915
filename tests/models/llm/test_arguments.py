"""Engine arguments of vLLM, checked without importing it."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from models.llm import arguments

needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed here")
RIGHT: dict[str, Any] = {
    "dtype": "bfloat16",
    "max_num_seqs": 16,
    "enforce_eager": True,
    "gpu_memory_utilization": 1,
    "kv_cache_memory_bytes": 1 << 27,
    "hf_overrides": {"head_dtype": "float32"},
    "limit_mm_per_prompt": {"image": 2},
    "tokenizer": "elsewhere",
}


@needs_vllm
def test_right_arguments_are_left_alone() -> None:
    assert arguments.check(RIGHT) is RIGHT


@needs_vllm
@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"max_num_seq": 16}, "vLLM has no engine argument `max_num_seq`; did you mean `max_num_seqs`?"),
        ({"zzz": 16}, "vLLM has no engine argument `zzz`"),
        ({"max_num_seqs": "16"}, "engine argument `max_num_seqs` must be `int | None`, not str"),
        ({"max_num_seqs": True}, "engine argument `max_num_seqs` must be `int | None`, not bool"),
        ({"enforce_eager": "true"}, "engine argument `enforce_eager` must be `bool`, not str"),
        ({"enforce_eager": 1}, "engine argument `enforce_eager` must be `bool`, not int"),
        ({"seed": 0.5}, "engine argument `seed` must be `int`, not float"),
        ({"gpu_memory_utilization": "0.5"}, "engine argument `gpu_memory_utilization` must be `float`, not str"),
    ],
)
def test_a_wrong_argument_is_named(said: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        arguments.check(RIGHT | said)
    assert str(caught.value) == complaint


def test_the_weights_are_no_engine_argument() -> None:
    with pytest.raises(ValueError, match="`weights` of the stanza sets it"):
        arguments.check({"model": "/weights"})


@needs_vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_what_is_read_from_the_source_is_what_vllm_takes() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    assert set(arguments.installed()) == {field.name for field in dataclasses.fields(AsyncEngineArgs)}


@pytest.fixture
def _without_vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    arguments.installed.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    yield
    arguments.installed.cache_clear()


@pytest.mark.usefixtures("_without_vllm")
def test_where_vllm_is_not_installed_nothing_is_refused() -> None:
    assert arguments.check({"zzz": 1}) == {"zzz": 1}
