"""The scaling policy as Serve's controller calls it, and what Serve's status says of a cold engine."""

import asyncio
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.serve._private.common import DeploymentID, ReplicaID, TimeStampedValue
from ray.serve.autoscaling_policy import _apply_autoscaling_config
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy
from ray.serve.exceptions import RayServeException

from autoscaling.deployment import deployment_options
from autoscaling.policy import shared
from autoscaling.policy.options import BY_POLICY, Scaling
from autoscaling.policy.reports import KNOWN, Reader
from autoscaling.watch import POLL_S, Start, StartWatch
from contract.telemetry import SCALING_FAILURES, SCALING_REPLICAS, Metric
from deployments.ingress.deployment import wake
from tests.autoscaling.steps import MONDAY_S
from tests.catalogs import chat
from tests.waiting import cancelled

pytestmark = pytest.mark.virtual

GPU = {"ray_actor_options": {"num_cpus": 0.05, "num_gpus": 1}}

Reports = Mapping[str, Mapping[str, float]]
NOTHING: Reports = {}


class Controller:
    """Calls policies as Serve's does, with Serve's own bounds and delays around them."""

    def __init__(self, file: Path, sent: list[Any]) -> None:
        self.now_s = MONDAY_S
        self.shared = shared.SharedPolicy(lambda: {"GPU": 1.0}, file, clock=lambda: self.now_s)
        self.shared.__dict__["_instruments"] = lambda metric, labels, value: sent.append((metric, *labels, value))
        self.scaling, self.app = BY_POLICY, "app"
        self.targets: dict[str, int] = {}
        self._policies: dict[str, Any] = {}
        self._configs: dict[str, AutoscalingConfig] = {}
        self._states: dict[str, dict[str, Any]] = {}

    def deploy(self, *names: str, **serving: Any) -> None:
        for name in names:
            model = chat(name, **{"deployment": GPU, "idle_s": 60} | serving)
            config = AutoscalingConfig(**deployment_options(model, scaling=self.scaling)["autoscaling_config"])
            pickled = AutoscalingPolicy.from_serialized_policy_def(
                config.policy.model_dump(), config.policy.get_serialized_policy_def() or b""
            )
            self._policies[name] = _apply_autoscaling_config(pickled.get_policy()(**pickled.policy_kwargs))
            self._configs[name], self._states[name], self.targets[name] = config, {}, 0

    def delete(self, name: str) -> Any:
        return self._policies.pop(name)

    def look(self, *facts: Any, times: int = 1) -> None:
        for _ in range(times):
            self._look(*facts)

    def _look(self, calls: dict[str, float], running: dict[str, int], reports: Reports = NOTHING) -> None:
        for name, policy in self._policies.items():
            replica = ReplicaID(f"{name}-1", DeploymentID(name))
            metrics = {key: {replica: [TimeStampedValue(self.now_s, n)]} for key, n in reports.get(name, {}).items()}
            context = AutoscalingContext(
                deployment_id=DeploymentID(name),
                deployment_name=name,
                app_name=self.app,
                current_num_replicas=running.get(name, 0),
                target_num_replicas=self.targets[name],
                running_replicas=[],
                total_num_requests=calls.get(name, 0.0),
                total_queued_requests=0.0,
                aggregated_metrics=None,
                raw_metrics=metrics,
                capacity_adjusted_min_replicas=0,
                capacity_adjusted_max_replicas=1,
                policy_state=self._states[name],
                last_scale_up_time=None,
                last_scale_down_time=None,
                current_time=self.now_s,
                config=self._configs[name],
            )
            self.targets[name], self._states[name] = policy(context)
        self.now_s += 1


def memories(policy: shared.SharedPolicy) -> Mapping[str, Any]:
    """Memories of engines, which no reply of the policy shows."""
    return policy._policy.memories


@pytest.fixture
def sent() -> list[tuple[Metric, str, float]]:
    return []


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch, sent: list[Any], tmp_path: Path) -> Controller:
    controller = Controller(tmp_path / "warmth.json", sent)
    monkeypatch.setattr(shared, "SHARED", controller.shared)
    return controller


def test_the_idle_engine_makes_room_for_one_of_which_serve_asks_no_policy(controller: Controller) -> None:
    controller.deploy("left", "right")
    controller.look({"left": 1}, {})
    controller.look({"left": 1}, {"left": 1})
    controller.look({}, {"left": 1}, {"left": {"ended": 1, "worked_s": 2.0, "load_s": 3.0}})
    for _ in range(3):
        controller.look({"right": 1}, {"left": 1})
        assert controller.targets == {"left": 1, "right": 1}  # a call may have ended since the last report
    controller.look({"right": 1}, {"left": 1}, times=5)
    assert controller.targets == {"left": 0, "right": 1}
    memory = memories(controller.shared)["app/left"]
    assert (memory.service_s, memory.load_s) == (2.0, 3.0)


@pytest.mark.parametrize("others", [(), ("left",)])
def test_an_engine_that_has_just_started_is_not_stopped_by_what_was_decided_before(
    controller: Controller, others: tuple[str, ...]
) -> None:
    """Serve asks no policy while it starts: the last decision is from before its first call, or found no room."""
    controller.deploy(*others, "right")
    controller.look({}, {})
    controller.look(dict.fromkeys(others, 1), {})
    controller.look(dict.fromkeys((*others, "right"), 1), dict.fromkeys(others, 1), times=5)
    for name in others:
        controller.delete(name)
    controller.look({"right": 1}, {}, times=5)
    for _ in range(3):
        controller.look({"right": 1}, {"right": 1})
        assert controller.targets["right"] == 1


@pytest.mark.parametrize("works_still", [False, True])
def test_an_engine_that_was_deleted_is_not_waited_for(controller: Controller, works_still: bool) -> None:
    """Serve asks its policy no more, and keeps it until the last call has ended."""
    controller.deploy("left", "right")
    calls = {"left": 1, "right": 1} if works_still else {"left": 1}
    controller.look({**calls}, {**calls}, times=3)
    policy = controller.delete("right")
    if not works_still:
        del policy
    controller.look({}, {"left": 1}, times=20)
    assert controller.targets["left"] == 1


def test_what_replicas_counted_before_is_not_news(controller: Controller) -> None:
    controller.deploy("left")
    counted = {"left": {"ended": 1000, "worked_s": 2000.0}}
    for reports in (counted, counted, NOTHING, counted, counted):
        controller.look({"left": 9}, {"left": 1}, reports)
    memory = memories(controller.shared)["app/left"]
    assert (memory.service_s, memory.rate) == (None, 0.0)


def test_one_engine_that_fails_leaves_the_others_to_the_policy(controller: Controller, sent: list[Any]) -> None:
    controller.deploy("left", "right")
    endless = {"left": {"ended": 1, "worked_s": 2.0, "load_s": math.inf}}
    for reports in (NOTHING, endless, endless):
        controller.look({"left": 99, "right": 1}, {"left": 1, "right": 1}, reports)
    assert (SCALING_FAILURES, "left", 1) in sent
    assert (SCALING_FAILURES, "right", 1) not in sent


def test_a_policy_that_fails_leaves_it_to_serves_default_and_counts(
    controller: Controller, sent: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    controller.deploy("left")
    controller.targets["left"] = 1
    controller.look({"left": 1}, {"left": 1})
    monkeypatch.setattr(controller.shared._policy, "decide", lambda *_: 1 / 0)
    controller.look({}, {"left": 1}, times=10)
    assert controller.targets["left"] == 1  # its delay is the stanza's idle time
    assert sent.count((SCALING_FAILURES, "left", 1)) == 10
    assert caplog.text.count("ZeroDivisionError") == 2  # one sentence, and one traceback


def test_a_dry_run_says_what_it_would_do(
    controller: Controller, sent: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    controller.scaling = Scaling(by="dry-run")
    controller.deploy("left", idle_s=5)
    controller.targets["left"] = 1
    with caplog.at_level("INFO"):
        controller.look({}, {"left": 1}, times=12)
    assert controller.targets["left"] == 1
    assert sent[-1] == (SCALING_REPLICAS, "left", 0)
    assert caplog.text.count("left would have 0 replicas: idle") == 1


def test_serve_decides_alone_where_the_profile_says_so() -> None:
    assert "policy" not in deployment_options(chat("x"), scaling=Scaling(by="serve"))["autoscaling_config"]


def test_what_was_learned_is_kept_and_a_file_that_is_none_does_no_harm(controller: Controller, tmp_path: Path) -> None:
    controller.deploy("left")
    for second in range(700):
        controller.look({"left": float(second % 40 == 0)}, {"left": 1})
    file = tmp_path / "warmth.json"
    assert json.loads(file.read_text())["app/left"]["gaps"]
    again = shared.SharedPolicy(dict, file)
    assert memories(again)["app/left"].gaps.written()
    for broken in ("7", '{"service_s": NaN, "load_s": 1, "gaps": {}}', '{"service_s": 1, "load_s": -1, "gaps": {}}'):
        file.write_text(f'{{"app/left": {broken}}}')
        assert not memories(shared.SharedPolicy(dict, file))


def test_the_next_version_of_a_graph_goes_on_from_what_was_learned(controller: Controller, tmp_path: Path) -> None:
    """`launch upgrade` starts `app-2` beside `app`, which it deletes then."""
    controller.deploy("left")
    for second in range(700):
        controller.look({"left": float(second % 40 == 0)}, {"left": 1})
    learned, file = memories(controller.shared)["app/left"].gaps.written(), tmp_path / "warmth.json"
    for app in ("app-2", "app-3"):
        old, controller.app = controller.delete("left"), app
        controller.deploy("left")
        controller.look({}, {}, times=2)
        assert memories(controller.shared)[f"{app}/left"].gaps.written() == learned
        assert len(memories(controller.shared)) == 2, "the old one may have calls still"
        del old
        controller.look({}, {}, times=400)
        assert memories(controller.shared).keys() == {f"{app}/left"}
        kept = json.loads(file.read_text())
        assert kept.keys() == {"app/left"}
    file.write_text(json.dumps({"app-2/right": kept["app/left"]}))  # as they were named before
    assert memories(shared.SharedPolicy(dict, file)).keys() == {"app/right"}


def test_a_graph_that_its_config_file_numbers_is_no_version_of_another() -> None:
    engines = [shared.engine_of(f"{app}/left") for app in ("app-1", "app-1-2", "app-2", "app")]
    assert engines == ["app-1/left", "app-1/left", "app/left", "app/left"]


def test_a_budget_replaces_what_the_cluster_has(controller: Controller) -> None:
    controller.scaling = Scaling(budget={"GPU": 2})
    controller.deploy("left", "right")
    controller.look({"left": 1}, {"left": 1})
    controller.look({"right": 1}, {"left": 1}, times=20)
    assert controller.targets == {"left": 1, "right": 1}


def test_what_replicas_told_is_kept_for_those_that_run_and_some_that_are_gone() -> None:
    reader = Reader()
    running = [_told(f"stays-{number}", ended=number) for number in range(3)]
    for number in range(KNOWN + 100):
        reader.facts(_context([*running, _told(f"goes-{number}", ended=5)]))
    assert reader.facts(_context(running)).ended == 0
    assert len(reader._seen or ()) == KNOWN + len(running)
    assert reader.facts(_context([*running, _told(f"goes-{KNOWN}", ended=7)])).ended == 2


def _told(name: str, ended: float) -> tuple[ReplicaID, dict[str, float]]:
    return ReplicaID(name, DeploymentID("left")), {"ended": ended, "worked_s": ended, "load_s": 1.0}


def _context(told: list[tuple[ReplicaID, dict[str, float]]]) -> AutoscalingContext:
    metrics = {
        key: {replica: [TimeStampedValue(0.0, values[key])] for replica, values in told}
        for key in ("ended", "worked_s", "load_s")
    }
    return cast(
        "AutoscalingContext",
        SimpleNamespace(raw_metrics=metrics, current_num_replicas=1, target_num_replicas=1, total_num_requests=0),
    )


def deployed(state: str, **deployments: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(applications={"parlance": SimpleNamespace(status=state, deployments=deployments)})


def status(state: str, trigger: str = "REPLICA_STARTUP_FAILED", **replicas: int) -> SimpleNamespace:
    return deployed("RUNNING", engine=SimpleNamespace(status=state, status_trigger=trigger, replica_states=replicas))


@pytest.mark.parametrize(
    ("answer", "start"),
    [
        (status("HEALTHY"), Start.COLD),
        (status("UPSCALING", STARTING=1), Start.STARTING),
        (status("UNHEALTHY"), Start.FAILED),
        (status("UNHEALTHY", "HEALTH_CHECK_FAILED", STARTING=1), Start.STARTING),
        (status("UNHEALTHY", "HEALTH_CHECK_FAILED"), Start.COLD),
        (status("DEPLOY_FAILED", STARTING=1), Start.FAILED),
        (SimpleNamespace(applications={}), Start.COLD),
    ],
)
async def test_status_is_read(answer: SimpleNamespace, start: Start) -> None:
    watch = StartWatch("parlance", ask=lambda: answer)
    await watch.refresh()
    assert watch["engine"] is start


async def test_one_poller_asks_serve_however_many_wait() -> None:
    answers = iter([status("UPSCALING", STARTING=1), status("UPSCALING", STARTING=1), status("UNHEALTHY")])
    asked_s: list[float] = []

    def ask() -> SimpleNamespace:
        asked_s.append(asyncio.get_running_loop().time())
        return next(answers)

    watch = StartWatch("parlance", ask)
    await asyncio.gather(*(watch.until_failed("engine") for _ in range(256)))
    assert asked_s == [0.0, POLL_S, 2 * POLL_S]


@pytest.mark.parametrize("end", ["RUNNING", "DEPLOY_FAILED", "UNHEALTHY"])
async def test_waits_until_the_application_is_deployed(end: str) -> None:
    answers = iter([SimpleNamespace(applications={}), deployed("DEPLOYING"), deployed(end)])
    await StartWatch("parlance", lambda: next(answers)).until_deployed()
    assert list(answers) == [], "it did not wait until Serve was done"


async def test_a_controller_that_was_gone_is_asked_again_unless_nothing_is_to_be_woken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await wake([], StartWatch("parlance", ask=lambda: pytest.fail("Serve was asked")))
    woken: list[str] = []
    engine = SimpleNamespace(warm=lambda: woken.append("engine"))
    answers = iter([RayServeException("a secret of the inside"), deployed("RUNNING")])

    def ask() -> SimpleNamespace:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    await wake([engine], StartWatch("parlance", ask))
    assert woken == ["engine"]
    assert "a secret of the inside" not in caplog.text


async def test_serve_is_not_asked_once_no_call_waits() -> None:
    asked: list[SimpleNamespace] = []
    watch = StartWatch("parlance", lambda: asked.append(status("UPSCALING", STARTING=1)) or asked[0])
    for _ in range(2):  # a second herd has a poller of its own
        waiting = [asyncio.create_task(watch.until_failed("engine")) for _ in range(3)]
        await asyncio.sleep(POLL_S / 2)
        for task in waiting:
            task.cancel()
        await asyncio.sleep(10 * POLL_S)
    assert len(asked) == 2


async def test_serve_is_asked_once_a_second_whatever_comes_and_goes() -> None:
    """Each question occupies a thread until the controller answers."""
    asked: list[SimpleNamespace] = []
    watch = StartWatch("parlance", lambda: asked.append(status("UPSCALING", STARTING=1)) or asked[0])
    for _ in range(8):
        waiting = asyncio.create_task(watch.until_failed("engine"))
        await asyncio.sleep(POLL_S / 100)
        assert await cancelled(waiting)
    assert len(asked) == 1


async def test_old_failure_is_not_believed() -> None:
    answers = iter([status("UNHEALTHY"), status("UPSCALING", STARTING=1), status("UNHEALTHY")])
    watch = StartWatch("parlance", lambda: next(answers))
    await watch.refresh()
    assert watch["engine"] is Start.FAILED
    await asyncio.sleep(2 * POLL_S)
    await watch.until_failed("engine")
    assert next(answers, None) is None


async def test_controller_that_does_not_answer_changes_nothing() -> None:
    def answering() -> SimpleNamespace:
        if watch["engine"] is Start.STARTING:
            raise ConnectionError("the controller is gone")
        return status("UPSCALING", STARTING=1)

    watch = StartWatch("parlance", answering)
    await watch.refresh()
    await watch.refresh()
    assert watch["engine"] is Start.STARTING
