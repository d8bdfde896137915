"""Work beside requests: done in time, logged where it fails, and done again. In virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import pairwise

import pytest

from concurrency.background import MAX_PAUSE_S, PAUSE_S, attempted, supervised
from tests.autoscaling.doubles import run

SECRET = "planted-text"


class Work:
    """Steps that raise as often as is left in `faults`, and note when they were taken."""

    def __init__(self, faults: int = 0, lasts_s: float = 0.0) -> None:
        self.faults, self.lasts_s = faults, lasts_s
        self.began_s: list[float] = []

    async def step(self) -> None:
        self.began_s.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.lasts_s)
        if self.faults:
            self.faults -= 1
            raise ValueError(SECRET)


def began(work: Work, until_s: float, start: Callable[[], asyncio.Task[None]]) -> list[float]:
    """When the work began, until then."""

    async def watched() -> None:
        task = start()
        await asyncio.sleep(until_s)
        task.cancel()
        await asyncio.wait([task])

    run(watched())
    return [round(at_s, 6) for at_s in work.began_s]


@pytest.mark.parametrize(
    ("every_s", "at_once", "times"),
    [(5.0, False, [5, 10, 15]), (5.0, True, [0, 5, 10, 15]), (None, False, [0]), (None, True, [0])],
)
def test_work_is_done_when_it_is_due(every_s: float | None, at_once: bool, times: list[float]) -> None:
    work = Work()
    assert began(work, 19, lambda: supervised("work", work.step, every_s=every_s, at_once=at_once)) == times


@pytest.mark.parametrize(
    ("every_s", "pauses"),
    [(None, [1, 2, 4, 8, 16, 32, 60, 60]), (5.0, [1, 2, 4, 5, 5]), (0.5, [1, 1, 1]), (100.0, [1, 2, 4, 8, 16, 32, 60])],
)
def test_work_that_fails_is_done_again_after_longer_and_longer_pauses(
    every_s: float | None, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(faults=len(pauses))
    times = began(work, 1000, lambda: supervised("try", work.step, every_s=every_s, at_once=True))
    assert [after - before for before, after in pairwise(times)][: len(pauses)] == pauses
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(failures) == len(pauses)
    assert "could not try: ValueError" in failures[0].getMessage()
    assert "in step" in failures[0].getMessage(), "where it failed"
    assert SECRET not in caplog.text
    if every_s is not None:
        assert times[len(pauses) + 1] - times[len(pauses)] == every_s, "as before, once it succeeds"


@pytest.mark.parametrize(("lasts_s", "pause_s"), [(MAX_PAUSE_S - 1, 2 * PAUSE_S), (MAX_PAUSE_S + 1, PAUSE_S)])
def test_a_loop_that_went_well_for_long_is_soon_begun_again(lasts_s: float, pause_s: float) -> None:
    work = Work(faults=2, lasts_s=lasts_s)
    times = began(work, 1000, lambda: supervised("loop", work.step))
    assert times[2] - times[1] == lasts_s + pause_s


def test_a_step_that_fails_keeps_no_other_from_being_done() -> None:
    broken, fine = Work(faults=3), Work()
    assert began(fine, 19, lambda: supervised("steps", broken.step, fine.step, every_s=5.0)) == [5, 6, 8, 12, 17]


async def test_a_step_says_whether_it_succeeded_and_a_cancellation_is_none_of_its_errors() -> None:
    work = Work(faults=1)
    assert [await attempted("try", work.step) for _ in range(2)] == [False, True]
    endless = asyncio.create_task(attempted("wait", asyncio.Event().wait))
    await asyncio.sleep(0)
    endless.cancel()
    await asyncio.wait([endless])
    assert endless.cancelled()
