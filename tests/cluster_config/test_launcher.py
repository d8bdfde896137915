"""`cluster.yaml` as Ray's own launcher reads it."""

import os
import re
import subprocess
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

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


def test_every_machine_that_is_named_is_started_without_a_library_of_a_cloud(cluster: dict[str, Any]) -> None:
    assert cluster["provider"]["type"] == "local"
    workers = len(cluster["provider"]["worker_ips"])
    (kind,) = cluster["available_node_types"].values()
    assert (kind["min_workers"], kind["max_workers"], cluster["max_workers"]) == (workers, workers, workers)


def test_every_node_has_the_environment_before_ray_starts(cluster: dict[str, Any]) -> None:
    """Token, secret and the addresses of the state: the head judges the graph by them too."""
    assert "~/.parlance/environment" in cluster["file_mounts"]
    for commands in (cluster["head_start_ray_commands"], cluster["worker_start_ray_commands"]):
        (start,) = [command for command in commands if "ray start" in command]
        assert start.index(". ~/.parlance/environment &&") < start.index("ray start")


def test_every_node_has_the_address_that_the_launcher_knows_it_by(cluster: dict[str, Any]) -> None:
    """Ray's own choice is loopback where there is no default route; workers then find no head."""
    for commands in (cluster["head_start_ray_commands"], cluster["worker_start_ray_commands"]):
        (address,) = re.findall(r"--node-ip-address=(\$\(.*?\))", commands[-1])
        shown = subprocess.run(
            ["bash", "-c", f"echo {address}"],
            env={"SSH_CONNECTION": "192.0.2.9 50000 192.0.2.2 22", "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=True,
        )
        assert shown.stdout == "192.0.2.2\n"


def test_the_dashboard_is_closed_to_the_network(cluster: dict[str, Any]) -> None:
    assert "--dashboard-host=127.0.0.1" in cluster["head_start_ray_commands"][-1]
