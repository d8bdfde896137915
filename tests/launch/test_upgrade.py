"""`python -m launch upgrade` without Ray: what is planned, and every step over a cluster that remembers its configs."""

import asyncio
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaling.policy.options import needs
from launch.upgrade import cli
from launch.upgrade.handover import DRAIN_S, QUIET_S, START_S, Handover
from launch.upgrade.plan import Deployment, UpgradeError, UpgradePlan, Version, versions
from state.database.open import migrate
from tests.waiting import ManualClock

OTHER = {"name": "other", "import_path": "other:app", "route_prefix": "/other"}
CONFIG = {
    "name": "parlance",
    "import_path": "graph:build",
    "route_prefix": "/",
    "args": {"profile": "production", "ingress": {"replicas": 2, "warm": ["a"], "resume_within_s": 600}},
}


def details(config: Mapping[str, Any], ingress: int = 2, engines: int = 1, status: str = "RUNNING") -> dict[str, Any]:
    """`ApplicationDetails` of a graph with one engine on a GPU."""

    def deployment(count: int, target: int, options: dict[str, Any]) -> dict[str, Any]:
        replicas = [{"state": "RUNNING", "actor_name": f"{config['name']}#{n}"} for n in range(count)]
        return {"status": "HEALTHY", "deployment_config": options, "replicas": replicas, "target_num_replicas": target}

    scaled = {"ray_actor_options": {"num_cpus": 2, "num_gpus": 0.5}, "autoscaling_config": {"min_replicas": 0}}
    return {
        "status": status,
        "message": "",
        "route_prefix": config["route_prefix"],
        "deployed_app_config": dict(config),
        "deployments": {
            "ingress": deployment(ingress, 2, {"ray_actor_options": {"num_cpus": 0.1}}),
            "chat-a": deployment(engines, engines, scaled),
        },
    }


@dataclass
class Remembering:
    """A cluster whose applications are those that were deployed.

    Attributes:
        ingress: replicas of an ingress that run.
        left: calls of an application, one number for each look; 0 after them.
        broken: names of applications that fail.
        is_stuck: nothing that is deployed has an effect.
    """

    apps: dict[str, dict[str, Any]] = field(default_factory=dict)
    ingress: int = 2
    left: dict[str, list[int]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    is_stuck: bool = False
    history: list[dict[str, str | None]] = field(default_factory=list)

    def applications(self) -> dict[str, dict[str, Any]]:
        return deepcopy(self.apps)

    def deploy(self, configs: list[dict[str, Any]]) -> None:
        if self.is_stuck:
            return
        self.apps = {config["name"]: details(config, self.ingress) for config in configs}
        for name in self.broken & self.apps.keys():
            self.apps[name] |= {"status": "DEPLOY_FAILED", "message": "no such profile", "deployments": {}}
        self.history.append({config["name"]: config["route_prefix"] for config in configs})

    def calls(self, version: Version) -> int:
        looks = self.left.get(version.name, [])
        return looks.pop(0) if looks else 0


def handover(cluster: Remembering, clock: ManualClock | None = None) -> Handover:
    clock = clock or ManualClock()

    def sleep(seconds: float) -> None:
        clock.now_s += seconds

    return Handover(cluster, "parlance", clock=clock, sleep=sleep)


@pytest.fixture
def cluster() -> Remembering:
    return Remembering({"parlance": details(CONFIG), "other": details(OTHER)})


def test_an_upgrade_never_leaves_the_route_empty_and_its_ingress_waits_for_no_engine(cluster: Remembering) -> None:
    moving = handover(cluster)
    moving.deploy(CONFIG)
    assert cluster.apps["parlance-2"]["deployed_app_config"]["args"]["ingress"] == {"replicas": 2}
    assert "warm" in CONFIG["args"]["ingress"]  # type: ignore[index]
    moving.until_ready()
    old, new = moving.pair()
    moving.move(new, old)
    assert moving.until_idle(old) == 0
    moving.delete(old)
    assert cluster.history == [
        {"parlance": "/", "other": "/other", "parlance-2": None},
        {"parlance": None, "other": "/other", "parlance-2": "/"},
        {"other": "/other", "parlance-2": "/"},
    ]


def test_the_next_upgrade_takes_the_next_number(cluster: Remembering) -> None:
    cluster.apps = {"parlance-2": details(CONFIG | {"name": "parlance-2"})}
    moving = handover(cluster)
    moving.deploy(CONFIG)
    assert [version.name for version in moving.versions()] == ["parlance-2", "parlance-3"]


@pytest.mark.parametrize("moved", [False, True])
def test_a_roll_back_at_any_time_gives_the_route_to_the_old_graph(cluster: Remembering, moved: bool) -> None:
    moving = handover(cluster)
    moving.deploy(CONFIG)
    old, new = moving.pair()
    if moved:
        moving.move(new, old)
    old, new = moving.pair()
    moving.move(old, new)
    moving.until_idle(new)
    moving.delete(new)
    assert cluster.history[-1] == {"parlance": "/", "other": "/other"}
    assert all("/" in routes.values() for routes in cluster.history)


@pytest.mark.parametrize(
    ("started", "broken", "says"),
    [
        *((started, set(), f"not ready after {START_S:.0f} s") for started in (0, 1)),
        (2, {"parlance-2"}, "the old one was never left: no such profile"),
    ],
)
def test_a_graph_that_is_not_ready_or_cannot_be_built_is_taken_away_before_any_request(
    cluster: Remembering, started: int, broken: set[str], says: str
) -> None:
    cluster.ingress, cluster.broken = started, broken
    moving = handover(cluster)
    moving.deploy(CONFIG)
    with pytest.raises(UpgradeError, match=says):
        moving.until_ready()
    assert cluster.history[-1] == {"parlance": "/", "other": "/other"}
    assert list(cluster.apps) == ["parlance", "other"]


def test_a_controller_that_does_nothing_is_not_waited_for_without_end(cluster: Remembering) -> None:
    moving = handover(cluster)
    moving.deploy(CONFIG)
    old, new = moving.pair()
    cluster.is_stuck = True
    with pytest.raises(UpgradeError, match="`parlance-2` does not take /; see `serve status`"):
        moving.move(new, old)
    with pytest.raises(UpgradeError, match="Serve does not delete `parlance`; see `serve status`"):
        moving.delete(old)


@pytest.mark.parametrize(
    ("looks", "seconds"), [([], QUIET_S), ([3, 2, 1], QUIET_S + 2), ([1, 0, 0, 1], QUIET_S + 3), ([1] * 2000, DRAIN_S)]
)
def test_a_graph_is_left_when_it_was_without_calls_for_a_while(
    cluster: Remembering, looks: list[int], seconds: float
) -> None:
    cluster.left = {"parlance": looks}
    clock = ManualClock()
    began_s = clock.now_s
    moving = handover(cluster, clock)
    (old,) = moving.versions()
    left = moving.until_idle(old)
    assert (clock.now_s - began_s, left) == (seconds, int(seconds == DRAIN_S))


def lone(**changes: Any) -> Remembering:
    return Remembering({"parlance": details(CONFIG) | changes})


@pytest.mark.parametrize(
    ("there", "sentence"),
    [
        (Remembering(), "serve deploy"),
        (lone(deployed_app_config=None), "make serve"),
        (lone(route_prefix="/other"), "answers at /other"),
        (Remembering({"parlance": details(CONFIG), "parlance-2": details(CONFIG)}), "--rollback"),
    ],
)
def test_what_cannot_be_upgraded_is_told_why(there: Remembering, sentence: str) -> None:
    with pytest.raises(UpgradeError, match=sentence):
        handover(there).deploy(CONFIG)
    assert there.history == []


def test_versions_are_told_from_other_applications() -> None:
    names = ("parlance-10", "parlance", "parlance-2", "parlance-old", "other", "my-parlance")
    apps = {name: details(CONFIG | {"name": name}) for name in names}
    apps["parlance-2"]["status"] = "DELETING"
    assert [version.name for version in versions(apps, "parlance")] == ["parlance", "parlance-10"]


def plan(free: Mapping[str, float], ingress: Mapping[str, float] | None = None) -> UpgradePlan:
    (old,) = versions({"parlance": details(CONFIG, engines=2)}, "parlance")
    engines = (Deployment("chat-a", {"CPU": 2, "GPU": 0.5}), Deployment("chat-b", {"GPU": 1}, least=1))
    return UpgradePlan(old, "parlance-2", engines, Deployment("ingress", ingress or {"CPU": 0.1}, 2, 2), free)


@pytest.mark.parametrize(("free_gpus", "peak"), [(0, 1), (0.5, 1.5), (1.5, 2.5), (7, 2.5)])
def test_new_engines_take_no_more_than_the_cards_that_are_free(free_gpus: float, peak: float) -> None:
    assert plan({"GPU": free_gpus}).peak() == {"GPU": peak}


def test_the_plan_says_who_waits_for_a_card() -> None:
    lines = "\n".join(plan({"CPU": 1, "GPU": 0.5}).lines())
    assert "parlance answers at / and holds 1 GPU" in lines
    assert "both together hold at most 1.5 GPU" in lines
    assert lines.endswith("callers with them: chat-b")
    assert "chat-b: 1 GPU, starts at once where a card is free" in lines


@pytest.mark.parametrize(
    ("free", "reasons"), [({"CPU": 0.2, "ingress": 2}, 0), ({"CPU": 0.19, "ingress": 2}, 1), ({"ingress": 1}, 2)]
)
def test_a_second_ingress_needs_a_place(free: Mapping[str, float], reasons: int) -> None:
    assert len(list(plan(free, {"CPU": 0.1, "ingress": 1}).faults())) == reasons


def test_a_placement_group_counts_whole() -> None:
    bundles = [{"CPU": 1, "GPU": 1}, {"GPU": 1}]
    assert needs({"ray_actor_options": {}, "placement_group_bundles": bundles}) == {"CPU": 1, "GPU": 2}
    assert needs({}) == {"CPU": 1}, "as Serve has it"


def test_two_graphs_share_no_sqlite_file_and_an_older_schema_is_migrated_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATABASE", "REDIS", "BLOBS"):
        monkeypatch.delenv(f"PARLANCE_{name}_URL", raising=False)
    with pytest.raises(UpgradeError, match=r"cannot share SQLite(?s:.*)PARLANCE_REDIS_URL(?s:.*)PARLANCE_BLOBS_URL"):
        cli.require_shared_state()
    url = f"sqlite:///{tmp_path}/state.db"  # in place of a PostgreSQL, which no start migrates
    monkeypatch.setattr(cli, "splits", lambda *_, **__: [])
    monkeypatch.setenv("PARLANCE_DATABASE_URL", url)
    with pytest.raises(UpgradeError, match="state migrate"):
        cli.require_shared_state()
    asyncio.run(migrate(url))
    cli.require_shared_state()


def test_other_code_is_another_runtime_environment_and_a_config_file_has_one_graph(tmp_path: Path) -> None:
    config = tmp_path / "graph.yaml"
    config.write_text(yaml.safe_dump({"applications": [CONFIG]}))
    options = cli.command_line().parse_args([str(config), "--code", str(tmp_path), "--python", "/opt/new/bin/python"])
    with pytest.raises(UpgradeError, match=r"no graph\.py"):
        cli.application(options)
    (tmp_path / "graph.py").touch()
    environment = cli.application(options)["runtime_env"]
    assert environment["py_executable"] == "/opt/new/bin/python"
    assert environment["env_vars"]["PYTHONPATH"].split(":")[0] == str(tmp_path)
    assert "runtime_env" not in cli.application(cli.command_line().parse_args([str(config)]))
    config.write_text(yaml.safe_dump({"applications": [CONFIG, OTHER]}))
    with pytest.raises(UpgradeError, match="2 applications"):
        cli.application(cli.command_line().parse_args([str(config)]))
