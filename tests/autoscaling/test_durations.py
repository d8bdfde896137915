"""Times that were seen: what is expected of the next, and how processes share them."""

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaling.durations import Durations

TIMES = st.lists(st.floats(0.0, 3600.0), min_size=1, max_size=60)
SHARES = st.floats(0.0, 0.999)


def durations(times: list[float], memory: int = 200) -> Durations:
    made = Durations(memory)
    for seconds in times:
        made.add(seconds)
    return made


@given(TIMES, SHARES, SHARES)
def test_quantiles_rise_with_their_share(times: list[float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= durations(times).quantile(low) <= durations(times).quantile(high)


@given(TIMES)
def test_a_time_that_was_always_the_same_is_expected(times: list[float]) -> None:
    made = durations([times[0]] * 50)
    assert made.quantile(0.5) == pytest.approx(times[0])
    assert made.mean() == pytest.approx(times[0])


def test_quantiles_are_those_of_the_times() -> None:
    draw = random.Random(1)
    times = [draw.lognormvariate(1, 0.7) for _ in range(4000)]
    made = durations(times, memory=4000)
    for share in (0.1, 0.5, 0.9, 0.99):
        assert made.quantile(share) == pytest.approx(sorted(times)[int(share * 4000)], rel=0.12)
    # Three eighths end before 1.5 s; a fifth of the others makes it half of all.
    assert durations([1.0, 2.0, 3.0]).left(1.5, 0.2) == pytest.approx(0.5)


@given(TIMES, st.floats(0.0, 7200.0), SHARES, SHARES)
def test_what_is_left_is_not_negative_and_rises(times: list[float], passed_s: float, one: float, other: float) -> None:
    low, high = sorted((one, other))
    made = durations(times)
    assert 0 <= made.left(passed_s, low) <= made.left(passed_s, high) + 1e-6


def test_who_has_waited_longer_than_anybody_may_wait_as_long_again() -> None:
    made = durations([1.0] * 100)
    assert made.left(0.0, 0.5) == pytest.approx(1.0, rel=0.1)
    assert made.left(0.5, 0.5) == pytest.approx(0.5, rel=0.2)
    assert 1 < made.left(10.0, 0.5) < 10


def test_old_times_fade() -> None:
    made = durations([10.0] * 100 + [1.0] * 100, memory=20)
    assert made.quantile(0.9) < 1.2


def test_few_times_promise_little() -> None:
    assert durations([1.0]).quantile(0.9) > 1.4
    assert durations([1.0] * 100).quantile(0.9) < 1.1


def test_a_prior_holds_until_something_was_seen() -> None:
    made = Durations(20, prior_s=7.0)
    assert (made.quantile(0.5), made.left(3.0, 0.5)) == (7.0, 4.0)
    made.add(2.0)
    assert made.quantile(0.5) < 2.2


def test_nothing_is_expected_of_what_nobody_has_seen() -> None:
    assert Durations(20).is_empty
    with pytest.raises(ValueError, match="nothing is known"):
        Durations(20).quantile(0.5)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.01, 100.0)), max_size=60), st.integers(1, 10))
def test_processes_that_share_lose_no_time_and_count_none_twice(seen: list[tuple[int, float]], every: int) -> None:
    text, processes, alone = None, [Durations(1000) for _ in range(3)], Durations(1000)
    for number, (process, seconds) in enumerate(seen):
        processes[process].add(seconds)
        alone.add(seconds)
        if number % every == 0:
            for one in processes:
                unsaved, text = one.unsaved, one.merged(text)
                one.adopt(text, unsaved)
    for one in processes * 2:
        unsaved, text = one.unsaved, one.merged(text)
        one.adopt(text, unsaved)
    assert [one.unsaved for one in processes] == [0, 0, 0]
    for share in (0.1, 0.5, 0.9) if seen else ():
        assert processes[0].quantile(share) == pytest.approx(alone.quantile(share), abs=0.001)


def test_what_comes_while_a_text_is_written_is_not_lost() -> None:
    made = durations([1.0, 2.0])
    unsaved, text = made.unsaved, made.merged(None)
    made.add(3.0)
    made.adopt(text, unsaved)
    assert made.unsaved == 1
    assert [made.quantile(share) for share in (0.25, 0.5, 0.75)] == pytest.approx([1.0, 2.0, 3.0])


JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=5)
NEAR = st.dictionaries(
    st.integers(-2, 10**9).map(str) | st.text(max_size=3), st.floats() | st.integers() | JSON, max_size=3
)


@given(text=st.text() | (JSON | NEAR).map(json.dumps), times=TIMES)
def test_a_text_that_no_process_has_written_never_stops_one(text: str, times: list[float]) -> None:
    merged = durations(times).merged(text)
    after = Durations(200)
    after.adopt(merged, 0)
    assert 0 <= after.quantile(0.5) < math.inf
    after.adopt(text, 0)
