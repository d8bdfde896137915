"""A simulated day: nothing is lost in it, nothing is counted twice, and it can be repeated."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.serve import autoscaling_policy
from ray.serve.config import AutoscalingConfig, AutoscalingContext

from autoscaling.policy import Terms
from benchmarks.capacity import __main__ as command
from benchmarks.capacity import made
from benchmarks.capacity.engine import Setup, SimulatedOutcome
from benchmarks.capacity.policies import POLICIES
from benchmarks.capacity.replicas import Cluster, Replicas
from benchmarks.capacity.run import Result, simulate
from benchmarks.capacity.serve_default import default_decision
from benchmarks.capacity.summary import summary
from benchmarks.capacity.traces import SimulatedTrace, TraceError, read
from contract.catalog import Serving

NOW_S = 1_000_000.0


def setup(most: int = 2, slots: int = 2, gpus: float = 0.0, slowdown: float = 0.0, **stanza: object) -> Setup:
    serving = Serving.model_validate(
        {"adapter": "a.b:C", "runtime": "x", "max_ongoing_requests": slots, "load_s": 5, "idle_s": 30, **stanza}
    )
    config = AutoscalingConfig(
        min_replicas=0, max_replicas=most, target_ongoing_requests=slots, downscale_delay_s=30, upscale_delay_s=5
    )
    terms = Terms(slots, 0, most, load_s=5, idle_s=30, needs={"GPU": gpus})
    return Setup("e", serving, config, terms, slowdown, 100_000)


def trace_of(requests: Iterable[tuple[float, int, float]], engines: int = 1) -> SimulatedTrace:
    """Of (when, whose, how much work); they go to engines in turn."""
    rows = sorted(requests)
    at_s, owner, work_s = (np.array(column) for column in zip(*rows, strict=True)) if rows else np.empty((3, 0))
    engine = (np.arange(len(rows)) % engines).astype(np.int16)
    names = tuple(f"e{number}" for number in range(engines))
    return SimulatedTrace(names, at_s.astype(float), engine, owner.astype(np.int32), work_s.astype(np.float32))


def play(trace: SimulatedTrace, setups: Mapping[str, Setup], policy: str = "parlance", **options: object) -> Result:
    room = options.get("room") or {}
    return simulate(trace, setups, POLICIES[policy](setups, room), **options)


REQUESTS = st.lists(
    st.tuples(st.floats(0, 300), st.integers(1, 4), st.floats(0, 20, allow_subnormal=False)), max_size=40
)
STANZAS = st.fixed_dictionaries(
    {
        "when_cold": st.sampled_from(["wait", "refuse"]),
        "when_busy": st.sampled_from(["queue", "refuse"]),
        "max_queued": st.integers(1, 5),
        "deadline_s": st.sampled_from([2, 40, 300]),
        "wait_s": st.sampled_from([2, 240]),
        "slots": st.integers(1, 4),
        "most": st.integers(1, 3),
        "slowdown": st.sampled_from([0.0, 0.3]),
    }
)


@settings(max_examples=40)
@given(requests=REQUESTS, stanza=STANZAS, policy=st.sampled_from(list(POLICIES)), ingresses=st.integers(1, 3))
def test_each_request_has_one_end_and_each_slot_one_call(
    requests: list[tuple[float, int, float]], stanza: dict[str, object], policy: str, ingresses: int
) -> None:
    trace, setups, most = trace_of(requests), {"e0": setup(**stanza)}, []
    work = Replicas._work

    def watched(self: Replicas, replica: object, call: object) -> None:
        work(self, replica, call)
        most.append(len(replica.work))

    with mock.patch.object(Replicas, "_work", watched):
        result = play(trace, setups, policy, ingresses=ingresses, grace_s=1500)
    told = summary(trace, result)
    assert told.answered + told.busy + told.warming_up + told.late + told.open == len(requests)
    assert told.open == 0, "all had the time to end"
    assert len(most) == told.answered, "each answer was begun once, and nothing else was"
    assert max(most, default=0) <= stanza["slots"]
    assert (result.wait_s >= 0).all()


@settings(max_examples=20)
@given(requests=REQUESTS, policy=st.sampled_from(list(POLICIES)), seed=st.integers(1, 3))
def test_the_same_seed_gives_the_same_day(requests: list[tuple[float, int, float]], policy: str, seed: int) -> None:
    trace, setups = trace_of(requests), {"e0": setup()}
    first, second = (play(trace, setups, policy, seed=seed) for _ in range(2))
    assert (first.outcome == second.outcome).all()
    assert (first.wait_s == second.wait_s).all()
    assert first.engines == second.engines


@settings(max_examples=20)
@given(requests=REQUESTS, policy=st.sampled_from(list(POLICIES)))
def test_replicas_never_take_more_than_there_is(requests: list[tuple[float, int, float]], policy: str) -> None:
    trace, setups, left = trace_of(requests, 2), {name: setup(gpus=1.0) for name in ("e0", "e1")}, []
    take = Cluster._take

    def watched(self: Cluster, needs: Mapping[str, float], times: int) -> None:
        take(self, needs, times)
        left.append(self._left["GPU"])

    with mock.patch.object(Cluster, "_take", watched):
        play(trace, setups, policy, room={"GPU": 1.0}, grace_s=300)
    assert min(left, default=0.0) >= 0.0


def test_an_idle_engine_makes_room_and_both_answer() -> None:
    trace = trace_of([(0.0, 1, 1.0), (100.0, 1, 1.0)], 2)
    result = play(trace, {name: setup(most=1, gpus=1.0) for name in ("e0", "e1")}, room={"GPU": 1.0}, grace_s=200)
    assert (result.outcome == SimulatedOutcome.ANSWERED).all()


def test_a_cold_engine_is_waited_for_as_long_as_it_loads() -> None:
    result = play(trace_of([(10.0, 1, 1.0)]), {"e0": setup()}, grace_s=100)
    assert result.wait_s[0] == pytest.approx(5.1, abs=0.6)
    assert result.engines[0].cold_hits == 1


def test_more_than_slots_and_queue_are_refused() -> None:
    for count, busy in ((4, 0), (5, 0), (6, 1)):
        trace = trace_of([(0.0, 1, 1.0), *((50.0, 1, 30.0) for _ in range(count))])
        result = play(trace, {"e0": setup(most=1, slots=2, max_queued=3)}, "always on", grace_s=300)
        assert np.count_nonzero(result.outcome == SimulatedOutcome.BUSY) == busy, count


def test_who_asks_little_does_not_wait_behind_a_flood() -> None:
    flood = [(1 + number / 100, 1, 2.0) for number in range(200)]
    trace = trace_of([*flood, (0.5, 2, 0.1), *((20.0 + number, 2, 0.1) for number in range(5))])
    told = summary(trace, play(trace, {"e0": setup(most=1, slots=4)}, "always on", grace_s=600))
    assert told.others_p95_s * 5 < told.p50_s


def test_each_call_beside_others_takes_longer_by_the_slowdown() -> None:
    calls = [(50.0, 1, 10.0), (50.0, 1, 10.0)]
    ends = [play(trace_of([*calls, (50.1, 1, 1.0)]), {"e0": setup(1, 2, 0, slow)}, "always on") for slow in (0, 0.5)]
    assert [float(max(result.wait_s)) for result in ends] == pytest.approx([9.9, 14.9], abs=0.01)


def test_made_traces_have_what_was_asked() -> None:
    for shape in made.SHAPES:
        trace = made.trace(shape, ["a", "b", "c"], 5000, 3600, 20, 5.0, 1)
        assert len(trace) == 5000
        assert (np.diff(trace.at_s) >= 0).all()
        assert 0 <= trace.at_s[0] <= trace.at_s[-1] <= 3600
        assert trace.work_s.mean() == pytest.approx(5, rel=0.15), shape
        assert set(trace.owner) <= set(range(1, 22))
        counts = np.bincount(trace.engine)
        assert counts[0] > counts[1] > counts[2]


@settings(max_examples=60)
@given(looks=st.lists(st.tuples(st.floats(0, 40), st.floats(0.5, 20)), max_size=30))
def test_serve_would_decide_the_same(looks: list[tuple[float, float]]) -> None:
    """Its own wrapper, under a clock that is ours, says what `default_decision` says."""
    config, policy = setup(most=5).config, autoscaling_policy.replica_queue_length_autoscaling_policy
    wrapped = autoscaling_policy._apply_autoscaling_config(policy)
    now_s, target, ours, theirs = NOW_S, 0, {}, {}
    for calls, passed_s in looks:
        now_s += passed_s
        ctx = AutoscalingContext(
            None, "e", "a", target, target, [], calls, 0, {}, {}, 0, 5, theirs, None, None, now_s, config
        )
        with mock.patch.object(autoscaling_policy.time, "time", return_value=now_s):
            wanted, theirs = wrapped(ctx)
        decided, ours = default_decision(config, target, target, calls, now_s, ours)
        assert decided == min(5, max(0, wanted))
        target = decided


ENGINES = {"chat": "e0"}


UNREADABLE = {
    "": "no column `at`; it has none",
    "at,organisation\n": "no column `model`; it has at, organisation",
    "at,model\n": "unknown how long calls take",
    "at,model,took_ms,waited_ms\n1,chat,,\n": "played: of 1 it was not kept how long they took",
    "at,model,took_ms,waited_ms\n1,chat,5,9\n": "-0.004 is no time",
    "at,model,work_s\n": "no request that can be played",
    "at,model,work_s\nnoon,chat,1\n": "line 2 of the trace cannot be read: Invalid isoformat string: 'noon'",
    "at,model,work_s\n1,chat,1\n2,chat,long\n": "line 3 of the trace cannot be read",
    "at,model,work_s\n1,chat,-1\n": "-1.0 is no time",
    "at,model,work_s\n1,chat,nan\n": "nan is no time",
    "at,model,work_s\n1,gone,1\n": "played: 1 are of `gone`, which this profile does not have",
    f"at,model,work_s\n{NOW_S + 1},chat,1\n": "played: 1 come in the future",
}


def test_what_cannot_be_read_is_said() -> None:
    for text, sentence in UNREADABLE.items():
        with pytest.raises(TraceError) as refused:
            pytest.fail(f"{text!r} gave {read(text.splitlines(), ENGINES, NOW_S)}")
        assert sentence in str(refused.value)


def test_what_is_odd_is_played_and_told() -> None:
    lines = ["at,model,organisation,work_s", "90000,chat,a,2", "100,chat,b,1", "5,gone,a,1", f"{NOW_S + 9},chat,a,1"]
    trace = read(lines, ENGINES, NOW_S)
    assert trace.at_s.tolist() == [0, 89_900]
    assert trace.work_s.tolist() == [1, 2]
    assert trace.owner.tolist() == [2, 1]
    sorted_note, gap, left_out = trace.notes
    assert "1 requests stand before an earlier one" in sorted_note
    assert "Nothing came for 25.0 h" in gap
    assert "`gone`" in left_out
    assert "future" in left_out


def test_usage_is_a_trace_of_when_requests_came_and_how_long_they_were_worked_on() -> None:
    lines = [
        "at,model,took_ms,waited_ms",
        "1970-01-01T00:01:40Z,chat,12000,2000",
        "1970-01-01T00:02:00Z,chat,2000,0",
        "1970-01-01T00:02:00Z,chat,,",
    ]
    trace = read(lines, ENGINES, NOW_S)
    assert (trace.epoch_s, trace.at_s.tolist(), trace.work_s.tolist()) == (88, [0, 30], [10, 2])
    assert "of 1 it was not kept how long they took" in trace.notes[0]


WRONG = {
    "nowhere.csv": "No such file",
    "day --engine x": "embedded has no deployment `x`",
    "day --set idle_s": "`idle_s` sets nothing; write it like idle_s=60",
    "day --set colour=1": "nothing is named `colour`",
    "day --sweep idle_s=-1": "idle_s",
    "day --requests 0": "at least one request",
}


def test_the_command_prints_a_line_for_each_value_or_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for arguments, sentence in WRONG.items():
        with pytest.raises(SystemExit):
            command.main(arguments.split())
        assert sentence in capsys.readouterr().err
    engine = ["--engine", "chat-smollm2-135m-instruct", "--policy", "serve", "--sweep", "idle_s=30,600"]
    file = tmp_path / "sweep.json"
    assert command.main(["day", "--requests", "200", "--hours", "2", "--json", str(file), *engine]) == 0
    output = capsys.readouterr().out
    assert [f"serve, idle_s={value}" in output for value in (30, 600)] == [True, True]
    assert file.read_text().startswith('[{"policy": "serve, idle_s=30"')
