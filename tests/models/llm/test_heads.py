"""A head in float32 computes what it says, whichever layout the processor has, and how many threads a step takes."""

import importlib
import platform
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models import cpu
from models.llm.engine import prepare_environment

torch = pytest.importorskip("torch")

WIDTH, VOCABULARY = 96, 1_000


@pytest.fixture
def heads() -> Any:
    pytest.importorskip("vllm")
    return importlib.import_module("models.llm.vllm_internals.heads")


def refuse(*_: Any) -> Any:
    raise AssertionError("the head went vLLM's own way")


def drawn(rows: int) -> Any:
    """[rows, WIDTH] in bfloat16, the same at each call; other numbers of rows begin otherwise."""
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(rows)).to(torch.bfloat16)


@pytest.mark.parametrize("is_laid_out", [True, False])
def test_logits_are_exact_where_bfloat16_would_round_them(
    is_laid_out: bool, heads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_laid_out:
        monkeypatch.setattr(heads, "has_layouts", lambda dtype: False)
    for rows in (1, 4, 16):
        weight, hidden = drawn(VOCABULARY), drawn(rows)
        head, lm_head = heads.CachedHead(refuse), SimpleNamespace(weight=weight)
        exact = hidden.double() @ weight.double().T
        for _ in range(2):  # the first call lays the weight out
            logits = head(lm_head, hidden, None)
            assert logits.dtype == torch.float32
            assert (logits - exact).abs().max() < 1e-4, rows
        assert ((hidden @ weight.T) - exact).abs().max() > 1e-2, rows


def test_where_laid_out_weights_were_not_measured_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not cpu.has_layouts(torch.float32)


def test_other_weights_are_laid_out_anew(heads: Any) -> None:
    head = heads.CachedHead(refuse)
    hidden = torch.ones(1, WIDTH, dtype=torch.bfloat16)
    first = head(SimpleNamespace(weight=drawn(VOCABULARY)), hidden, None)
    second = head(SimpleNamespace(weight=-drawn(VOCABULARY)), hidden, None)
    assert torch.equal(first, -second)


def test_other_heads_go_vllms_own_way(heads: Any) -> None:
    head, square = heads.CachedHead(lambda *_: "vLLM's"), torch.ones(2, 2)
    for weight, bias in ((None, None), (square, None), (square.to(torch.bfloat16), torch.ones(2))):
        assert head(SimpleNamespace(weight=weight), torch.ones(1, 2), bias) == "vLLM's"


@pytest.fixture(scope="module")
def steps() -> Any:
    pytest.importorskip("vllm")
    prepare_environment(True, True, 2)
    return importlib.import_module("models.llm.vllm_internals.steps")


def test_crowded_cores_leave_one_thread_and_idle_ones_bring_all_back(steps: Any) -> None:
    for most in (2, 4):
        assert steps.target_threads(most, most, steps.CROWDED, 0.0) == most
        assert steps.target_threads(most, most, steps.CROWDED + 0.01, 0.0) == 1
        assert steps.target_threads(most, most, steps.CROWDED + 0.01, float(most)) == 1

        needed = steps.FREE_CORES * (most - 1)
        assert steps.target_threads(1, most, 0.0, needed) == 1
        assert steps.target_threads(1, most, 0.0, needed + 0.01) == most
        assert steps.target_threads(1, most, 0.9, needed + 0.01) == most


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's figures are Linux's")
def test_the_kernel_says_how_long_we_waited_and_what_was_idle_or_nothing(
    steps: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = steps.waited_s(), steps.idle_s()
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    assert steps.waited_s() >= before[0] > 0
    assert steps.idle_s() >= before[1] > 0
    monkeypatch.setattr(steps, "TASKS", tmp_path / "none")
    monkeypatch.setattr(steps, "STAT", tmp_path / "none")
    assert (steps.waited_s(), steps.idle_s()) == (0.0, 0.0)
    assert steps.target_threads(2, 2, 0.0, 0.0) == 2
