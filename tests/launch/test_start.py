"""Decisions of a start before anything of Ray runs: models, weights, engines that are woken."""

import copy
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import configs
from deployments.ingress.deployment import IngressArgs
from graph import GraphArgs, wire
from launch import selection, start
from launch.check import faults
from launch.check.faults import Plan, Site, plan_of
from launch.environment import StartError
from launch.selection import leave_out_large, memory_gib, wake_chat, woken
from models.weights import store
from tests.docs.pages import ROOT
from tests.waiting import eventually

LARGE, SMALL = "qwen2.5-coder-0.5b-instruct", "smollm2-135m-instruct"
LEAST_GIB = 7.5
EMBEDDED = list(configs.load("embedded").deployed())


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


def test_a_port_that_is_taken_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLANCE_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=rf":{port} cannot be used \(.*\); choose another port with PORT="):
            start.main([str(ROOT / "configs/embedded.yaml"), f"--port={port}"])
        with socket.create_connection(taken.getsockname()):
            taken.accept()[0].close()
    start._check_port("127.0.0.1", port)  # the kernel remembers connections of the server before


def test_a_server_makes_files_for_its_user_alone_and_stops_ray_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    seen = list[object]()

    async def no_key(_: Path) -> str:
        return ""

    doubles = {"_demo_key": no_key, "_deploy": print, "say_ready": iter, "_shut_down": lambda: seen.append("stopped")}
    for name, double in doubles.items():
        monkeypatch.setattr(start, name, double)
    monkeypatch.setattr(os, "umask", seen.append)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(TypeError):  # `iter` takes no such arguments
        start.serve_until_stopped(config, [], [], {"host": "127.0.0.1", "port": 1}, tmp_path, 2, [])
    assert seen == [0o077, "stopped"]


@pytest.fixture
def config() -> dict[str, Any]:
    return dict(yaml.safe_load((configs.FOLDER / "embedded.yaml").read_text("utf-8")))


@pytest.mark.parametrize(("gib", "left_out"), [(0, [LARGE]), (7.4, [LARGE]), (LEAST_GIB, []), (24, [])])
def test_a_small_machine_does_without_the_large_model_and_the_first_that_is_left_is_woken(
    config: dict[str, Any], gib: float, left_out: list[str]
) -> None:
    assert leave_out_large(config, gib) == left_out
    (app,) = config["applications"]
    models = list(plan_of(app["args"]).catalog.deployed())
    left = [SMALL] if left_out else [LARGE, SMALL]
    assert [model.id for model in models if model.noun == "chat"] == left
    wake_chat(config, models)
    assert woken(config) == list(GraphArgs.model_validate(app["args"]).ingress.warm) == left[:1]


def test_what_a_config_file_leaves_out_stays_out(config: dict[str, Any]) -> None:
    (app,) = config["applications"]
    app["args"]["without"] = ["whisper-large-v3", LARGE]
    assert leave_out_large(config, 4) == []
    assert app["args"]["without"] == ["whisper-large-v3", LARGE]


def test_none_is_woken_where_the_file_names_some_or_none_chats_or_another_builder_is_named() -> None:
    embedded = {"import_path": "graph:build", "args": {"profile": "embedded"}}
    for app, models in (
        (embedded | {"args": {"profile": "embedded", "ingress": {"warm": []}}}, EMBEDDED),
        (embedded, [model for model in EMBEDDED if model.noun != "chat"]),
        (embedded | {"import_path": "tests.cluster.app:build"}, EMBEDDED),
    ):
        told = {"applications": [app]}
        before = copy.deepcopy(told)
        wake_chat(told, models)
        assert told == before
    with pytest.raises(configs.CatalogError, match=r"ingress\.warm: the profile `embedded` sets up no model `bge-m3`"):
        wire(configs.load("embedded"), IngressArgs(warm=("bge-m3",)))


@pytest.mark.parametrize(("limit", "expected_gib"), [("max\n", None), (str(3 * 2**30), 3.0), (str(2**60), None)])
def test_a_container_has_what_it_may_take(
    limit: str, expected_gib: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = memory_gib()
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(selection, "CGROUP_LIMIT", tmp_path / "memory.max")
    assert memory_gib() == (expected_gib or pytest.approx(there, rel=0.01))


def test_only_the_weights_of_engines_that_are_woken_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "is_stored", lambda name: name == "whisper-base")
    later = start._left_for_later({"applications": [{"args": {"ingress": {"warm": [SMALL]}}}]}, EMBEDDED)
    assert {"kokoro-82m", LARGE} <= set(later)
    assert {SMALL, "whisper-base"}.isdisjoint(later)
    assert len(later) == len(set(later))


def test_what_fetches_the_other_weights_ends_with_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, pid, call = (tmp_path / name for name in ("python", "pid", "call"))
    program.write_text(f'#!/bin/sh\nsleep 600 &\necho $! >{pid}\necho "$@" >{pid}.new\nmv {pid}.new {call}\nwait\n')
    program.chmod(0o755)
    monkeypatch.setattr(start.sys, "executable", str(program))
    with start._fetching(["kokoro-82m"]):
        eventually(call.exists)
        child = Path(f"/proc/{pid.read_text().strip()}")
        assert child.exists()
        assert os.getpriority(os.PRIO_PROCESS, int(child.name)) == start.FETCH_NICENESS
        assert not (of_session := child / "autogroup").exists() or of_session.read_text().endswith(" nice 19\n")
    eventually(lambda: not child.exists())
    assert call.read_text() == "-m launch weights fetch --when-idle kokoro-82m\n"
    monkeypatch.setattr(start.sys, "executable", "/nowhere")
    with start._fetching([]):  # nothing is left, and nothing is started
        pass
