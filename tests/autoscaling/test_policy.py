"""The scaling policy on a clock: what it promises always, and what it does in single cases."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaling.policy import Facts, ScalingDecision, ScalingPolicy, Terms
from autoscaling.policy.demand import backlog_wait_s, replicas_to_start, steady_wait_s
from autoscaling.policy.gaps import Gaps
from autoscaling.policy.memory import Memory
from autoscaling.policy.scaling import Wish, share
from contract.hours import WarmHours
from tests.autoscaling.steps import MONDAY_S, Engine, World, serve_default

ONE = {"GPU": 1.0}
TERMS = Terms(slots=4, most=4, load_s=5, idle_s=60, idle_least_s=10, idle_most_s=60)

some_calls = st.lists(st.sampled_from([0, 0, 0, 0, 0, 0, 1, 3, 12]), min_size=200, max_size=400)


def world(*engines: Engine, room: Mapping[str, float] = {}) -> World:
    return World({f"engine {number}": engine for number, engine in enumerate(engines)}, room)


@settings(max_examples=40)
@given(some_calls, some_calls, st.integers(1, 8), st.integers(1, 20))
def test_replicas_at_work_are_never_taken_and_the_budget_never_passed(
    left: list[int], right: list[int], service_s: int, load_s: int
) -> None:
    def look(seen: World, decisions: Mapping[str, ScalingDecision]) -> None:
        for name, engine in seen.engines.items():
            assert decisions[name].replicas >= min(engine.running, math.ceil(len(engine.at_work) / engine.terms.slots))
        assert sum(decision.replicas for decision in decisions.values()) <= 2

    engines = [Engine(replace(TERMS, needs=ONE), service_s, load_s) for _ in range(3)]
    seconds = min(len(left), len(right))
    both = world(*engines, room={"GPU": 2.0})
    both.look = look
    both.run({"engine 0": left[:seconds], "engine 1": right[:seconds], "engine 2": [0] * seconds})


@settings(max_examples=30)
@given(st.lists(st.sampled_from([0, 0, 1, 2, 6, 20]), min_size=30, max_size=60), st.integers(1, 6))
def test_what_has_grown_begins_to_shrink_once_in_ten_minutes_at_most(loads: list[int], service_s: int) -> None:
    targets: list[int] = []
    engine = Engine(replace(TERMS, least=1, most=8, idle_s=1e6, idle_least_s=1e6, idle_most_s=1e6), service_s)
    one = world(engine)
    one.look = lambda seen, decisions: targets.append(decisions["engine 0"].replicas)
    one.run({"engine 0": [max(1, calls) for calls in loads for _ in range(60)]})
    steps = [(at, targets[at] - targets[at - 1]) for at in range(1, len(targets)) if targets[at] != targets[at - 1]]
    turns = [at for (_, before), (at, step) in pairwise(steps) if before > 0 > step]
    assert all(later - sooner >= 600 for sooner, later in pairwise(turns))


def test_what_a_burst_has_brought_goes_after_it_and_what_is_half_needed_stays() -> None:
    terms = Terms(slots=4, most=20, least=1, load_s=5, target_wait_s=10)
    for calls_after, seconds_until_less in ((0, 300), (6, 600)):
        engine = Engine(terms, service_s=5)
        targets: list[int] = []
        one = world(engine)
        one.look = lambda seen, decisions, targets=targets: targets.append(decisions["engine 0"].replicas)
        one.run({"engine 0": [10] * 120 + [1 + calls_after] * 400})
        has_shrunk = targets[-1] < max(targets)
        assert has_shrunk == (seconds_until_less < 400), targets[-1]


@settings(max_examples=20)
@given(some_calls, some_calls)
def test_everybody_is_answered_where_there_is_room_for_one(left: list[int], right: list[int]) -> None:
    engines = [Engine(replace(TERMS, most=1, needs=ONE), 2, 5) for _ in range(2)]
    both, seconds, calm = world(*engines, room=ONE), min(len(left), len(right)), [0] * 600
    both.run({"engine 0": left[:seconds] + calm, "engine 1": right[:seconds] + calm})
    assert [len(engine.waits_s) for engine in engines] == [sum(left[:seconds]), sum(right[:seconds])]


anything = st.floats() | st.sampled_from([-1.0, 0.0, 3.0, 1e300])
some_facts = st.builds(Facts, st.integers(-1, 9), st.integers(-1, 9), anything, st.integers(-9, 99), anything, anything)


@settings(max_examples=100)
@given(st.lists(st.tuples(some_facts, st.floats(-1e9, 1e9)), max_size=8))
def test_facts_that_lie_and_clocks_that_jump_spoil_nothing_for_long(lies: list[tuple[Facts, float]]) -> None:
    terms = replace(TERMS, needs=ONE)
    scaling = ScalingPolicy({"liar": terms, "honest": terms})
    for lie, jump_s in lies:
        decisions = scaling.decide({"liar": lie, "honest": Facts(1, 1, 5)}, {"GPU": 4.0}, MONDAY_S + jump_s)
        assert decisions.keys() ^ scaling.failures.keys() == {"liar", "honest"}
        assert 1 <= decisions["honest"].replicas <= terms.most
    sane = [
        scaling.decide({"liar": Facts(1, 1, 1, 1, 2.0, 5.0), "honest": Facts(1, 1, 5)}, {}, MONDAY_S + second)
        for second in range(60)
    ]
    assert 1 <= sane[-1]["liar"].replicas <= terms.most


some_wishes = st.builds(Wish, st.integers(0, 3), st.integers(0, 9), st.integers(0, 2), st.floats(0, 99), st.just(""))


@settings(max_examples=200)
@given(st.lists(st.tuples(some_wishes, st.sampled_from([0.25, 1.0, 3.0])), max_size=6), st.integers(0, 12))
def test_nobody_gives_way_further_than_all_must(wishes: list[tuple[Wish, float]], gpus: int) -> None:
    of = {str(number): wished for number, (wished, _) in enumerate(wishes)}
    terms = {str(number): replace(TERMS, needs={"GPU": need}) for number, (_, need) in enumerate(wishes)}
    granted = share(of, terms, {"GPU": float(gpus)})
    taken = sum(count * terms[name].needs["GPU"] for name, count in granted.items())
    least = {name: min(wished.floor, wished.replicas) for name, wished in of.items()}
    assert all(least[name] <= granted[name] <= of[name].replicas for name in of)
    assert taken <= gpus or granted == least
    for name, count in granted.items():
        need = terms[name].needs["GPU"]
        would_fit = taken + need <= gpus and (count + 1) * need <= gpus
        gave_for_a_larger_one = any(terms[other].needs["GPU"] > need for other in of)
        assert count == of[name].replicas or not would_fit or gave_for_a_larger_one


def test_nobody_makes_room_for_what_would_never_fit() -> None:
    scaling = ScalingPolicy({"small": replace(TERMS, needs=ONE), "huge": replace(TERMS, needs={"GPU": 3.0})})
    for second in range(30):
        decisions = scaling.decide(
            {"small": Facts(1, 1, float(not second)), "huge": Facts(0, 1, 1)}, {"GPU": 2.0}, MONDAY_S + second
        )
    assert decisions["huge"] == ScalingDecision(0, "makes room")
    assert decisions["small"].replicas == 1


def decide(
    terms: Terms, *looks: Facts, scaling: ScalingPolicy | None = None, now_s: float = MONDAY_S
) -> ScalingDecision:
    """The last decision of looks a second apart."""
    scaling = scaling or ScalingPolicy({"x": terms})
    for second, facts in enumerate(looks):
        decisions = scaling.decide({"x": facts}, {}, now_s + second)
    return decisions["x"]


def test_somebody_who_waits_for_a_cold_engine_wakes_it_at_once() -> None:
    assert decide(TERMS, Facts(calls=1)) == ScalingDecision(1, "calls wait")


@pytest.mark.parametrize(("waiting", "replicas"), [(11, 1), (12, 1), (13, 2)])
def test_a_replica_comes_when_the_predicted_wait_passes_the_target(waiting: int, replicas: int) -> None:
    """One slot, and a second a call."""
    terms = Terms(slots=1, most=9, target_wait_s=12, load_s=5)
    assert decide(terms, Facts(1, 1, 1 + waiting, ended=500, worked_s=500)).replicas == replicas


def test_replicas_that_start_count_with_what_is_left_of_their_start() -> None:
    terms = Terms(slots=1, most=9, target_wait_s=10, load_s=5)
    busy = Facts(1, 1, 25, ended=500, worked_s=500)
    first = decide(terms, busy)
    assert first.replicas == 4
    starting = Facts(1, 4, 25)
    assert decide(terms, busy, *[starting] * 4).replicas == 4
    assert decide(terms, busy, starting, replace(starting, calls=60)).replicas > 4


def test_no_replica_comes_that_would_come_too_late() -> None:
    terms = Terms(slots=1, most=9, target_wait_s=10, load_s=60)
    assert decide(terms, Facts(1, 1, 40, ended=500, worked_s=500)).replicas == 1
    assert decide(terms, Facts(1, 1, 66, ended=500, worked_s=500)).replicas == 1
    assert decide(terms, Facts(1, 1, 67, ended=500, worked_s=500)).replicas == 2


def test_waits_are_those_of_work_and_slots() -> None:
    assert backlog_wait_s(4, 1, [], 4, 2) == 0
    assert backlog_wait_s(8, 1, [], 4, 2) == 2
    assert backlog_wait_s(8, 1, [1], 4, 2) == 1
    assert backlog_wait_s(4, 0, [3, 9], 4, 2) == 3
    assert backlog_wait_s(1, 0, [], 4, 2) == math.inf
    assert replicas_to_start(100, 0.0, 0, [], 1, 1.0, 5, 10) == math.ceil(100 / (1 + 5))
    assert steady_wait_s(1, 2, 3) == pytest.approx(1.0, rel=0.1)  # M/M/2 at half load
    assert steady_wait_s(4, 4, 1) == math.inf


@pytest.mark.parametrize(("gap_s", "stays_s"), [(0, 60), (20, 22), (40, 42), (400, 10), (4000, 10)])
def test_idle_time_is_the_stanzas_until_gaps_were_learned_and_then_what_costs_least(gap_s: int, stays_s: int) -> None:
    scaling = ScalingPolicy({"x": TERMS})
    for number in range(20 if gap_s else 0):
        scaling.decide({"x": Facts(1, 1, 1)}, {}, MONDAY_S + number * gap_s)
        for second in range(1, gap_s):
            scaling.decide({"x": Facts(1, 1)}, {}, MONDAY_S + number * gap_s + second)
    start_s = MONDAY_S + 20 * gap_s
    scaling.decide({"x": Facts(1, 1, 1)}, {}, start_s)
    looks = (scaling.decide({"x": Facts(1, 1)}, {}, start_s + second)["x"].replicas for second in range(1, 1000))
    assert 1 + list(looks).index(0) == pytest.approx(stays_s, rel=0.2 if gap_s else 0)


def test_gaps_of_this_hour_of_the_week_count_before_those_of_others() -> None:
    gaps = Gaps()
    for week in range(12):
        gaps.add(MONDAY_S + week * 604_800, 20)
        gaps.add(MONDAY_S + 3600 + week * 604_800, 400)
    at = MONDAY_S + 20 * 604_800
    assert gaps.idle_s(at, 60, 10, 60) == pytest.approx(20, rel=0.2)
    assert gaps.idle_s(at + 3600, 60, 10, 60) == 10
    assert Gaps().idle_s(at, 60, 10, 60) is None


def test_what_was_learned_lasts_longer_than_the_process() -> None:
    gaps = Gaps()
    for _ in range(12):
        gaps.add(MONDAY_S, 20)
    other = Gaps.read(gaps.written())
    assert other.idle_s(MONDAY_S, 60, 10, 60) == gaps.idle_s(MONDAY_S, 60, 10, 60)


@pytest.mark.parametrize("period_s", [120, 280, 420, 900])
def test_bursts_that_recur_cost_no_more_than_by_serves_default(period_s: int) -> None:
    arrivals = [int(second % period_s < 20) * 2 for second in range(6 * 3600)]
    engines = []
    for way in (None, serve_default(3, 60, TERMS.most)):
        engine = Engine(TERMS, 5, 5)
        world(engine).run({"engine 0": arrivals}, way)
        engines.append(engine)
    ours, default = engines
    assert ours.replica_s <= default.replica_s
    assert sorted(ours.waits_s)[len(ours.waits_s) * 95 // 100] <= TERMS.target_wait_s


def test_hours_of_warmth_wake_an_engine_and_keep_it() -> None:
    terms = replace(TERMS, warm=(WarmHours(zone="Europe/Berlin", start=8, end=18),))
    scaling = ScalingPolicy({"x": terms})
    eight_s = MONDAY_S + 7 * 3600  # in Berlin, in winter
    assert decide(terms, Facts(), scaling=scaling, now_s=eight_s - 1).replicas == 0
    assert decide(terms, Facts(), scaling=scaling, now_s=eight_s) == ScalingDecision(1, "hours of warmth")
    assert decide(terms, *[Facts(1, 1)] * 200, scaling=scaling, now_s=eight_s + 9 * 3600).replicas == 1
    assert decide(terms, *[Facts(1, 1)] * 200, scaling=scaling, now_s=eight_s + 10 * 3600).replicas == 0
    saturday_s = eight_s + 5 * 24 * 3600
    assert decide(terms, Facts(), scaling=scaling, now_s=saturday_s).replicas == 0


@pytest.mark.parametrize("jump_s", [-1e6, 1e6])
def test_a_clock_that_jumps_ends_no_warmth_and_teaches_no_gap(jump_s: float) -> None:
    scaling = ScalingPolicy({"x": TERMS})
    decide(TERMS, Facts(1, 1, 1), *[Facts(1, 1)] * 30, scaling=scaling)
    after = [decide(TERMS, Facts(1, 1), scaling=scaling, now_s=MONDAY_S + jump_s + second) for second in range(31, 70)]
    assert [decision.replicas for decision in after] == [1] * 30 + [0] * 9
    assert not scaling.memories["x"].gaps.written()


def test_of_two_idle_engines_the_one_goes_that_is_likely_to_be_asked_later() -> None:
    scaling = ScalingPolicy({name: replace(TERMS, needs=ONE) for name in ("old", "new", "wanted")})
    looks = [{"old": Facts(1, 1, 1), "new": Facts(1, 1), "wanted": Facts()}]
    looks += [{"old": Facts(1, 1), "new": Facts(1, 1, 1), "wanted": Facts()}]
    looks += [{"old": Facts(1, 1), "new": Facts(1, 1), "wanted": Facts(0, 1, 1)}] * 8
    for second, facts in enumerate(looks):
        decisions = scaling.decide(facts, {"GPU": 2.0}, MONDAY_S + second)
    assert {name: decision.replicas for name, decision in decisions.items()} == {"old": 0, "new": 1, "wanted": 1}
    assert decisions["old"].why == "makes room"


def test_calls_that_go_on_coming_are_answered_within_the_target() -> None:
    """What waits now is little, and tells nothing of those that come meanwhile: ten slots are taken, there are four."""
    engine = Engine(Terms(slots=4, most=8, load_s=5.0, target_wait_s=10.0), service_s=5.0)
    World({"a": engine}).run({"a": [2] * 600})
    late = engine.waits_s[len(engine.waits_s) // 4 :]
    assert max(late) <= 2.0, "the engine never caught up"
    assert engine.replica_s <= 600 * 5, "three replicas work, and one or two more are to spare"


def test_where_places_run_out_the_engine_doubles() -> None:
    terms = Terms(slots=4, places=8, most=16, target_wait_s=1000.0)
    scaling = ScalingPolicy({"a": terms})
    full, nearly = Facts(2, 2, 16.0), Facts(2, 2, 15.0)
    assert scaling.decide({"a": nearly}, {}, MONDAY_S)["a"].replicas == 2
    assert scaling.decide({"a": full}, {}, MONDAY_S + 1)["a"].replicas == 4


def test_gaps_that_were_never_seen_are_expected() -> None:
    gaps = Gaps()
    for _ in range(50):
        gaps.add(MONDAY_S, 20.0)
    cautious_s = gaps.idle_s(MONDAY_S, 300.0, 30.0, 300.0)
    gaps.add(MONDAY_S, 3000.0)
    gaps.add(MONDAY_S, 3000.0)
    assert (cautious_s or 0) > 100
    assert (gaps.idle_s(MONDAY_S, 300.0, 30.0, 300.0) or 0) < 60


def test_a_replica_is_fresh_until_it_has_ended_a_call_or_is_gone() -> None:
    memory, seen = Memory(), []
    for at_s, (running, ended) in enumerate([(0, 0), (1, 0), (1, 0), (0, 0), (1, 0), (1, 1)]):
        memory.learn(Facts(running=running, target=1, calls=1, ended=ended, worked_s=float(ended)), at_s)
        seen.append(memory.started_s)
    assert seen == [None, 1, 1, None, 4, None]
