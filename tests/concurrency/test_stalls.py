"""When work that is under way counts as stalled, on a clock that the test turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from concurrency.stalls import FACTOR, RECENT, StallDetector, Stalled
from tests.waiting import ManualClock

LEAST_S, MOST_S = 60.0, 150.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000)


@pytest.fixture
def stalls(clock: ManualClock) -> StallDetector:
    return StallDetector(LEAST_S, MOST_S, now=clock)


@pytest.fixture
def take(stalls: StallDetector, clock: ManualClock) -> Callable[..., None]:
    """Some operations, one after the other, that each take so long."""

    def take(seconds: float, times: int = 1, size: float = 1.0) -> None:
        for _ in range(times):
            with stalls.watching("speak", size):
                clock.now_s += seconds

    return take


def is_well(stalls: StallDetector) -> bool:
    try:
        stalls.check("it stands still")
    except Stalled:
        return False
    return True


def silent_for(stalls: StallDetector, clock: ManualClock, seconds: float) -> bool:
    """Whether it is well after so long with one operation more."""
    stalls.begin("one")
    clock.now_s += seconds
    healthy = is_well(stalls)
    stalls.end("one", finished=False)
    return healthy


@pytest.mark.parametrize(
    ("before_s", "allowed_s"),
    [
        (None, MOST_S),  # nothing was measured
        (0.01, LEAST_S),
        (LEAST_S / FACTOR, LEAST_S),
        (9.0, 9.0 * FACTOR),
        (MOST_S / FACTOR, MOST_S),
        (140.0, MOST_S),
    ],
)
@pytest.mark.parametrize(("beside_s", "healthy"), [(-0.5, True), (0.0, True), (0.5, False)])
def test_silence_may_be_ten_times_what_was_measured_within_bounds(
    stalls: StallDetector,
    clock: ManualClock,
    take: Callable[..., None],
    before_s: float | None,
    allowed_s: float,
    beside_s: float,
    healthy: bool,
) -> None:
    if before_s is not None:
        take(before_s)
    assert silent_for(stalls, clock, allowed_s + beside_s) is healthy


def test_what_is_idle_is_well_however_long(
    stalls: StallDetector, clock: ManualClock, take: Callable[..., None]
) -> None:
    assert is_well(stalls)
    take(0.01, times=5)
    clock.now_s += 1e6
    assert is_well(stalls)
    assert silent_for(stalls, clock, LEAST_S)  # the time before it began does not count


def test_many_short_calls_and_one_that_hangs(
    stalls: StallDetector, clock: ManualClock, take: Callable[..., None]
) -> None:
    take(0.05, times=1000)
    stalls.begin("hung")
    clock.now_s += LEAST_S + 1
    with pytest.raises(Stalled, match="it stands still"):
        stalls.check("it stands still")
    stalls.end("hung")
    assert is_well(stalls)


def test_a_slow_call_among_fast_ones_is_well_while_they_are_finished(
    stalls: StallDetector, clock: ManualClock, take: Callable[..., None]
) -> None:
    take(0.05, times=10)
    stalls.begin("slow")
    for _ in range(1000):
        take(1.0)
        assert is_well(stalls)


def test_where_no_operation_waits_for_another_none_may_take_for_ever(
    stalls: StallDetector, clock: ManualClock, take: Callable[..., None]
) -> None:
    stalls.each_s = MOST_S
    stalls.begin("lost")
    take(1.0, times=150)
    assert is_well(stalls)
    take(1.0)
    assert not is_well(stalls)


def test_a_stream_that_gives_an_item_a_second_is_well_for_ever(
    stalls: StallDetector, clock: ManualClock, take: Callable[..., None]
) -> None:
    for _ in range(4 * 3600):
        take(1.0)
        assert is_well(stalls)
    assert clock.now_s > 4 * 3600


def test_time_between_items_is_the_clients_and_does_not_count(
    stalls: StallDetector, clock: ManualClock, take: Callable[..., None]
) -> None:
    for _ in range(5):
        take(0.1)
        clock.now_s += 10 * MOST_S
        assert is_well(stalls)


def test_what_goes_on_inside_an_answer_counts(stalls: StallDetector, clock: ManualClock) -> None:
    stalls.begin("transcribe")
    for _ in range(4 * 60):
        clock.now_s += 60
        stalls.went_on(clock.now_s)
        assert is_well(stalls)
    clock.now_s += MOST_S + 1
    stalls.went_on(clock.now_s - MOST_S - 1)
    assert not is_well(stalls)


def test_what_went_on_before_an_operation_began_does_not_make_it_older(
    stalls: StallDetector, clock: ManualClock
) -> None:
    stalls.begin("new")
    stalls.went_on(clock.now_s - 500)
    assert stalls.silence_s == 0


def test_who_leaves_proves_nothing(stalls: StallDetector, clock: ManualClock) -> None:
    stalls.begin("hung")
    for _ in range(200):
        stalls.begin("leaves")
        clock.now_s += 1
        stalls.end("leaves", finished=False)
    assert not is_well(stalls)


def test_clients_that_leave_early_do_not_make_an_engine_unwell(stalls: StallDetector, clock: ManualClock) -> None:
    for number in range(1000):
        stalls.begin(number)
        clock.now_s += 1
        stalls.end(number - 1, finished=False)  # the next one is there before it goes
        assert is_well(stalls)


def test_one_that_stood_still_for_once_is_forgotten_after_a_hundred(
    stalls: StallDetector, clock: ManualClock, take: Callable[..., None]
) -> None:
    take(14.0)
    take(0.1, times=RECENT - 1)
    assert silent_for(stalls, clock, 139)
    take(0.1)
    assert not silent_for(stalls, clock, 139)


def test_what_is_large_may_take_longer(stalls: StallDetector, clock: ManualClock, take: Callable[..., None]) -> None:
    take(0.1, size=10)
    stalls.begin("long text", size=900)
    clock.now_s += 89
    assert is_well(stalls)
    clock.now_s += 2
    assert not is_well(stalls)


def test_a_clock_that_jumps_is_forgiven_with_the_next_item(
    stalls: StallDetector, clock: ManualClock, take: Callable[..., None]
) -> None:
    take(1.0)
    with stalls.watching():
        clock.now_s += 86_400
        assert not is_well(stalls)
    assert is_well(stalls)
    assert stalls.limit_s == MOST_S


@pytest.mark.parametrize(("error", "finished"), [(ValueError, True), (asyncio.CancelledError, False)])
def test_an_error_finishes_an_operation_and_leaving_it_does_not(
    stalls: StallDetector, clock: ManualClock, error: type[BaseException], finished: bool
) -> None:
    with suppress(error), stalls.watching():
        raise error
    assert stalls.progressed_s == (clock.now_s if finished else float("-inf"))
    assert not stalls.started_s


def test_it_says_what_is_at_work(stalls: StallDetector) -> None:
    with stalls.watching("speak"), stalls.watching("speak"), stalls.watching("embed"):
        assert stalls.at_work == {"speak": 2, "embed": 1}
    assert not stalls.at_work
