"""How many threads a step takes: the rule, and that the kernel's figures it reads are there and grow."""

import sys
import time

import pytest

from models import cpu
from models.cpu import CROWDED, FREE_CORES, target_threads


@pytest.mark.parametrize("most", [2, 4])
def test_crowded_cores_leave_one_thread(most: int) -> None:
    assert target_threads(most, most, CROWDED, 0.0) == most
    assert target_threads(most, most, CROWDED + 0.01, 0.0) == 1
    assert target_threads(most, most, CROWDED + 0.01, float(most)) == 1


@pytest.mark.parametrize("most", [2, 4])
def test_idle_cores_bring_all_threads_back(most: int) -> None:
    needed = FREE_CORES * (most - 1)
    assert target_threads(1, most, 0.0, needed) == 1
    assert target_threads(1, most, 0.0, needed + 0.01) == most
    assert target_threads(1, most, 0.9, needed + 0.01) == most


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's figures are Linux's")
def test_the_kernel_says_how_long_we_waited_and_what_was_idle() -> None:
    before = cpu.waited_s(), cpu.idle_s()
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    after = cpu.waited_s(), cpu.idle_s()
    assert after[0] >= before[0] > 0
    assert after[1] >= before[1] > 0


def test_a_kernel_that_says_nothing_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: cpu.Path) -> None:
    monkeypatch.setattr(cpu, "TASKS", tmp_path / "none")
    monkeypatch.setattr(cpu, "STAT", tmp_path / "none")
    assert (cpu.waited_s(), cpu.idle_s()) == (0.0, 0.0)
    assert target_threads(2, 2, 0.0, 0.0) == 2
