"""A stanza's `serving` as deployment options."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaling.deployment import IDLE_VARIABLE, deployment_options
from tests.catalogs import chat


def test_engine_that_scales_to_zero_has_no_initial_replicas() -> None:
    scaling = deployment_options(chat("x"))["autoscaling_config"]
    assert scaling["min_replicas"] == 0
    assert "initial_replicas" not in scaling


def test_idle_time_is_the_stanzas_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    model = chat("x", idle_s=120)
    assert deployment_options(model)["autoscaling_config"]["downscale_to_zero_delay_s"] == 120
    monkeypatch.setenv(IDLE_VARIABLE, "3")
    assert deployment_options(model)["autoscaling_config"]["downscale_to_zero_delay_s"] == 3


def test_slots_are_the_stanzas() -> None:
    assert deployment_options(chat("x", max_ongoing_requests=7))["max_ongoing_requests"] == 7


def test_own_interpreter_and_environment_reach_the_replica() -> None:
    options = deployment_options(chat("x", python="/envs/a/bin/python", env={"A": "1"}))
    runtime_env = options["ray_actor_options"]["runtime_env"]
    assert runtime_env == {"py_executable": "/envs/a/bin/python", "env_vars": {"A": "1"}}


def test_relative_interpreter_is_one_of_the_repository() -> None:
    options = deployment_options(chat("x", python=".venv/qwen/bin/python"))
    executable = options["ray_actor_options"]["runtime_env"]["py_executable"]
    assert executable == str(Path(__file__).parent.parent.parent / ".venv/qwen/bin/python")


def test_model_without_an_environment_of_its_own_shares_the_pool() -> None:
    assert deployment_options(chat("x"))["ray_actor_options"]["runtime_env"] == {}
