"""What a start does before anything of Ray runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import configs
from launch import start
from launch.check import faults
from launch.check.faults import Plan, Site
from launch.environment import StartError
from models.weights import store
from tests.docs.pages import ROOT
from tests.waiting import eventually


@pytest.mark.parametrize("argument", ["--port=0", "--weights-only"])
def test_a_profile_is_judged_once(argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    judge = faults.faults

    def counted(plan: Plan, site: Site) -> Iterator[str]:
        judged.append(plan.catalog.profile)
        return judge(plan, site)

    def stop(*_: object, **__: object) -> None:
        raise StartError("the weights are next")

    monkeypatch.setenv("PARLANCE_HOME", str(tmp_path))
    monkeypatch.setattr(faults, "faults", counted)
    monkeypatch.setattr(start, "make_run_folder", lambda home: home)
    monkeypatch.setattr(start, "prepare_environment", lambda home, run: None)
    monkeypatch.setattr(start, "_fetch_weights", stop)
    with pytest.raises(SystemExit, match="the weights are next"):
        start.main([str(ROOT / "configs/embedded.yaml"), argument])
    assert judged == ["embedded"]


def test_only_the_weights_of_engines_that_are_woken_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "is_stored", lambda name: name == "whisper-base")
    models = list(configs.load("embedded").deployed())
    config = {"applications": [{"args": {"ingress": {"warm": ["smollm2-135m-instruct"]}}}]}
    later = start._left_for_later(config, models)
    assert {"kokoro-82m", "qwen2.5-coder-0.5b-instruct"} <= set(later)
    assert {"smollm2-135m-instruct", "whisper-base"}.isdisjoint(later)
    assert len(later) == len(set(later))


def test_what_fetches_the_other_weights_ends_with_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, pid = tmp_path / "python", tmp_path / "pid"
    program.write_text(f'#!/bin/sh\nsleep 600 &\necho $! >{pid}\necho "$@" >{tmp_path}/call\nwait\n')
    program.chmod(0o755)
    monkeypatch.setattr(start.sys, "executable", str(program))
    with start._fetching(["kokoro-82m"]):
        eventually((tmp_path / "call").exists)
        child = Path(f"/proc/{pid.read_text().strip()}")
        assert child.exists()
        assert os.getpriority(os.PRIO_PROCESS, int(child.name)) == start.FETCH_NICENESS
    eventually(lambda: not child.exists())
    assert (tmp_path / "call").read_text() == "-m launch weights fetch --when-idle kokoro-82m\n"


def test_nothing_is_started_where_no_weights_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start.sys, "executable", "/nowhere")
    with start._fetching([]):
        pass
