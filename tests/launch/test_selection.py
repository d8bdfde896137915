"""Which models a machine runs: large ones are left out of small machines, and the rest is as the config file says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import configs
from launch import selection
from launch.check.faults import plan_of
from launch.selection import leave_out_large, memory_gib, wake_chat, woken

LARGE, SMALL = "qwen2.5-coder-0.5b-instruct", "smollm2-135m-instruct"
LEAST_GIB = 7.5


@pytest.fixture
def config() -> dict[str, Any]:
    return dict(yaml.safe_load((configs.FOLDER / "embedded.yaml").read_text("utf-8")))


@pytest.mark.parametrize(("gib", "left_out"), [(0, [LARGE]), (7.4, [LARGE]), (LEAST_GIB, []), (24, [])])
def test_a_small_machine_does_without_the_large_model(config: dict[str, Any], gib: float, left_out: list[str]) -> None:
    assert leave_out_large(config, gib) == left_out
    (app,) = config["applications"]
    chat = [model.id for model in plan_of(app["args"]).catalog.deployed() if model.noun == "chat"]
    assert chat == ([SMALL] if left_out else [LARGE, SMALL])


def test_the_first_that_is_left_is_woken(config: dict[str, Any]) -> None:
    leave_out_large(config, 4)
    (app,) = config["applications"]
    wake_chat(config, list(plan_of(app["args"]).catalog.deployed()))
    assert woken(config) == [SMALL]


def test_what_a_config_file_leaves_out_stays_out(config: dict[str, Any]) -> None:
    (app,) = config["applications"]
    app["args"]["without"] = ["whisper-large-v3", LARGE]
    assert leave_out_large(config, 4) == []
    assert app["args"]["without"] == ["whisper-large-v3", LARGE]


@pytest.mark.parametrize(("limit", "expected_gib"), [("max\n", None), (str(3 * 2**30), 3.0), (str(2**60), None)])
def test_a_container_has_what_it_may_take(
    limit: str, expected_gib: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = memory_gib()
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(selection, "CGROUP_LIMIT", tmp_path / "memory.max")
    assert memory_gib() == (expected_gib or pytest.approx(there, rel=0.01))
