"""`cluster.yaml` as Ray's own launcher reads it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

import configs
from contract.catalog import Model
from launch.check.cost import replica_of
from tests.docs.pages import ROOT

FILE = ROOT / "cluster.yaml"


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    """The file with Ray's defaults, which Ray has found to be in order."""
    config: dict[str, Any] = prepare_config(yaml.safe_load(FILE.read_text("utf-8")))
    validate_config(config)
    return config


def test_a_misspelt_key_is_refused(cluster: dict[str, Any]) -> None:
    # What shows that the fixture is worth something.
    with pytest.raises(Exception, match=r"idle_timeout_minute'? was unexpected"):
        validate_config(cluster | {"idle_timeout_minute": 5})


def test_gpus_are_at_zero_until_somebody_asks(cluster: dict[str, Any]) -> None:
    kinds = cluster["available_node_types"].values()
    with_gpus = [kind for kind in kinds if kind["resources"].get("GPU")]
    assert len(with_gpus) >= 2
    assert all(kind["min_workers"] == 0 < kind["max_workers"] for kind in with_gpus)
    assert sum(kind["max_workers"] for kind in kinds) >= cluster["max_workers"]


@pytest.mark.parametrize("model", [*configs.load("production").deployed()], ids=lambda model: model.deployment)
def test_every_engine_of_production_fits_a_node(cluster: dict[str, Any], model: Model) -> None:
    replica = replica_of(model)
    kinds = cluster["available_node_types"].items()
    fitting = {
        id
        for id, kind in kinds
        if all(
            kind["resources"].get(name, 0) >= wanted for name, wanted in (("CPU", replica.cpus), ("GPU", replica.gpus))
        )
    }
    assert fitting == {"gpu_h100", "gpu_a100"} | ({"cpu"} if replica.gpus == 0 else set())


def test_heads_and_ingress_nodes_offer_engines_nothing(cluster: dict[str, Any]) -> None:
    kinds = cluster["available_node_types"]
    assert kinds[cluster["head_node_type"]]["resources"] == {"CPU": 0}
    assert kinds["ingress"]["resources"] == {"CPU": 0, "ingress": 1}


def test_every_node_joins_with_the_token(cluster: dict[str, Any]) -> None:
    path = "/run/parlance/ray_token"
    assert path in cluster["file_mounts"]
    assert f"--env RAY_AUTH_TOKEN_PATH={path}" in cluster["docker"]["run_options"]


def test_every_node_is_told_where_the_state_is(cluster: dict[str, Any]) -> None:
    # The head too: the graph is built there, and judged by what the environment says.
    assert "/run/parlance/state.env" in cluster["file_mounts"]
    for commands in (cluster["head_start_ray_commands"], cluster["worker_start_ray_commands"]):
        (start,) = [command for command in commands if "ray start" in command]
        assert start.index(". /run/parlance/state.env") < start.index("ray start")


def test_the_dashboard_is_closed_to_the_network(cluster: dict[str, Any]) -> None:
    assert "--dashboard-host=127.0.0.1" in cluster["head_start_ray_commands"][-1]
    assert {rule["FromPort"] for rule in cluster["provider"]["security_group"]["IpPermissions"]} == {8000}
