"""How many threads a step takes: the rule, and that the kernel's figures it reads are there and grow."""

import importlib
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from models.llm.engine import prepare_environment


@pytest.fixture(scope="module")
def steps() -> Any:
    """The module, which imports vLLM."""
    pytest.importorskip("vllm")
    prepare_environment(True, True, 2)
    return importlib.import_module("models.llm.vllm_internals.steps")


@pytest.mark.parametrize("most", [2, 4])
def test_crowded_cores_leave_one_thread(steps: Any, most: int) -> None:
    assert steps.target_threads(most, most, steps.CROWDED, 0.0) == most
    assert steps.target_threads(most, most, steps.CROWDED + 0.01, 0.0) == 1
    assert steps.target_threads(most, most, steps.CROWDED + 0.01, float(most)) == 1


@pytest.mark.parametrize("most", [2, 4])
def test_idle_cores_bring_all_threads_back(steps: Any, most: int) -> None:
    needed = steps.FREE_CORES * (most - 1)
    assert steps.target_threads(1, most, 0.0, needed) == 1
    assert steps.target_threads(1, most, 0.0, needed + 0.01) == most
    assert steps.target_threads(1, most, 0.9, needed + 0.01) == most


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's figures are Linux's")
def test_the_kernel_says_how_long_we_waited_and_what_was_idle(steps: Any) -> None:
    before = steps.waited_s(), steps.idle_s()
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    after = steps.waited_s(), steps.idle_s()
    assert after[0] >= before[0] > 0
    assert after[1] >= before[1] > 0


def test_a_kernel_that_says_nothing_is_no_error(steps: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(steps, "TASKS", tmp_path / "none")
    monkeypatch.setattr(steps, "STAT", tmp_path / "none")
    assert (steps.waited_s(), steps.idle_s()) == (0.0, 0.0)
    assert steps.target_threads(2, 2, 0.0, 0.0) == 2
