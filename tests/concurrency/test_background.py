"""Work beside requests in virtual time, and when work that is under way counts as stalled."""

import asyncio
import logging
from contextlib import suppress
from itertools import pairwise

import pytest

from concurrency.background import MAX_PAUSE_S, PAUSE_S, attempted, supervised, to_its_end
from concurrency.stalls import FACTOR, RECENT, StallDetector, Stalled
from tests.waiting import ManualClock, cancelled

pytestmark = pytest.mark.virtual

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


async def began(work: Work, until_s: float, task: asyncio.Task[None]) -> list[float]:
    """When the work began, until then."""
    await asyncio.sleep(until_s)
    await cancelled(task)
    return [round(at_s, 6) for at_s in work.began_s]


@pytest.mark.parametrize(
    ("every_s", "at_once", "times"),
    [(5.0, False, [5, 10, 15]), (5.0, True, [0, 5, 10, 15]), (None, False, [0]), (None, True, [0])],
)
async def test_work_is_done_when_it_is_due(every_s: float | None, at_once: bool, times: list[float]) -> None:
    work = Work()
    assert await began(work, 19, supervised("work", work.step, every_s=every_s, at_once=at_once)) == times


@pytest.mark.parametrize(
    ("every_s", "pauses"),
    [(None, [1, 2, 4, 8, 16, 32, 60, 60]), (5.0, [1, 2, 4, 5, 5]), (0.5, [1, 1, 1]), (100.0, [1, 2, 4, 8, 16, 32, 60])],
)
async def test_work_that_fails_is_done_again_after_longer_and_longer_pauses(
    every_s: float | None, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(faults=len(pauses))
    times = await began(work, 1000, supervised("try", work.step, every_s=every_s, at_once=True))
    assert [after - before for before, after in pairwise(times)][: len(pauses)] == pauses
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(failures) == len(pauses)
    assert "could not try: ValueError" in failures[0].getMessage()
    assert "in step" in failures[0].getMessage(), "where it failed"
    assert SECRET not in caplog.text
    if every_s is not None:
        assert times[len(pauses) + 1] - times[len(pauses)] == every_s, "as before, once it succeeds"


@pytest.mark.parametrize(("lasts_s", "pause_s"), [(MAX_PAUSE_S - 1, 2 * PAUSE_S), (MAX_PAUSE_S + 1, PAUSE_S)])
async def test_a_loop_that_went_well_for_long_is_soon_begun_again(lasts_s: float, pause_s: float) -> None:
    work = Work(faults=2, lasts_s=lasts_s)
    times = await began(work, 1000, supervised("loop", work.step))
    assert times[2] - times[1] == lasts_s + pause_s


async def test_a_step_that_fails_keeps_no_other_from_being_done() -> None:
    broken, fine = Work(faults=3), Work()
    assert await began(fine, 19, supervised("steps", broken.step, fine.step, every_s=5.0)) == [5, 6, 8, 12, 17]


async def test_a_step_says_whether_it_succeeded_and_a_cancellation_is_none_of_its_errors() -> None:
    work = Work(faults=1)
    assert [await attempted("try", work.step) for _ in range(2)] == [False, True]
    endless = asyncio.create_task(attempted("wait", asyncio.Event().wait))
    await asyncio.sleep(0)
    await cancelled(endless)
    assert endless.cancelled()


LEAST_S, MOST_S = 60.0, 150.0


class Detector(StallDetector):
    """One with a clock of its own."""

    def __init__(self) -> None:
        self.clock = ManualClock(1000)
        super().__init__(LEAST_S, MOST_S, now=self.clock)

    def take(self, seconds: float, times: int = 1, size: float = 1.0) -> None:
        """Some operations, one after the other, that each take so long."""
        for _ in range(times):
            with self.watching("speak", size):
                self.clock.now_s += seconds

    def is_well(self) -> bool:
        try:
            self.check("it stands still")
        except Stalled:
            return False
        return True

    def silent_for(self, seconds: float) -> bool:
        """Says if it is well after so long with one operation more."""
        self.begin("one")
        self.clock.now_s += seconds
        healthy = self.is_well()
        self.end("one", finished=False)
        return healthy


@pytest.fixture
def stalls() -> Detector:
    return Detector()


ALLOWED_S = {
    None: MOST_S,  # nothing was measured
    0.01: LEAST_S,
    LEAST_S / FACTOR: LEAST_S,
    9.0: 9.0 * FACTOR,
    MOST_S / FACTOR: MOST_S,
    140.0: MOST_S,
}
"""Silence that is allowed, by what was measured before."""


@pytest.mark.parametrize(("beside_s", "healthy"), [(-0.5, True), (0.0, True), (0.5, False)])
def test_silence_may_be_ten_times_what_was_measured_within_bounds(beside_s: float, healthy: bool) -> None:
    for before_s, allowed_s in ALLOWED_S.items():
        stalls = Detector()
        if before_s is not None:
            stalls.take(before_s)
        assert stalls.silent_for(allowed_s + beside_s) is healthy, before_s


def test_what_is_idle_is_well_however_long(stalls: Detector) -> None:
    assert stalls.is_well()
    stalls.take(0.01, times=5)
    stalls.clock.now_s += 1e6
    assert stalls.is_well()
    assert stalls.silent_for(LEAST_S)  # the time before it began does not count


def test_a_slow_call_among_fast_ones_is_well_while_they_are_finished(stalls: Detector) -> None:
    stalls.take(0.05, times=10)
    stalls.begin("slow")
    for _ in range(1000):
        stalls.take(1.0)
        assert stalls.is_well()


def test_where_no_operation_waits_for_another_none_may_take_for_ever(stalls: Detector) -> None:
    stalls.each_s = MOST_S
    stalls.begin("lost")
    stalls.take(1.0, times=150)
    assert stalls.is_well()
    stalls.take(1.0)
    assert not stalls.is_well()


def test_what_went_on_before_an_operation_began_does_not_make_it_older(stalls: Detector) -> None:
    stalls.begin("new")
    stalls.went_on(stalls.clock.now_s - 500)
    assert stalls.silence_s == 0


def test_who_leaves_proves_nothing(stalls: Detector) -> None:
    stalls.begin("hung")
    for _ in range(200):
        stalls.begin("leaves")
        stalls.clock.now_s += 1
        stalls.end("leaves", finished=False)
    assert not stalls.is_well()


def test_clients_that_leave_early_do_not_make_an_engine_unwell(stalls: Detector) -> None:
    for number in range(1000):
        stalls.begin(number)
        stalls.clock.now_s += 1
        stalls.end(number - 1, finished=False)  # the next one is there before it goes
        assert stalls.is_well()


def test_one_that_stood_still_for_once_is_forgotten_after_a_hundred(stalls: Detector) -> None:
    stalls.take(14.0)
    stalls.take(0.1, times=RECENT - 1)
    assert stalls.silent_for(139)
    stalls.take(0.1)
    assert not stalls.silent_for(139)


def test_what_is_large_may_take_longer(stalls: Detector) -> None:
    stalls.take(0.1, size=10)
    stalls.begin("long text", size=900)
    stalls.clock.now_s += 89
    assert stalls.is_well()
    stalls.clock.now_s += 2
    assert not stalls.is_well()


def test_a_clock_that_jumps_is_forgiven_with_the_next_item(stalls: Detector) -> None:
    stalls.take(1.0)
    with stalls.watching():
        stalls.clock.now_s += 86_400
        assert not stalls.is_well()
    assert stalls.is_well()
    assert stalls.limit_s == MOST_S


@pytest.mark.parametrize(("error", "finished"), [(ValueError, True), (asyncio.CancelledError, False)])
def test_an_error_finishes_an_operation_and_leaving_it_does_not(
    stalls: Detector, error: type[BaseException], finished: bool
) -> None:
    with suppress(error), stalls.watching():
        raise error
    assert stalls.progressed_s == (stalls.clock.now_s if finished else float("-inf"))
    assert not stalls.started_s


async def test_a_caller_that_is_cancelled_twice_waits_for_the_end_of_what_may_not_be_interrupted() -> None:
    end = asyncio.get_running_loop().create_future()
    caller = asyncio.create_task(to_its_end(end))
    for _ in range(2):
        await asyncio.sleep(0)
        caller.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not caller.done()
    end.set_result(None)
    await asyncio.wait([caller])
    assert caller.cancelled()
