"""The server that starts together with the graph, for the engine that is woken first."""

import os
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import configs
from autoscaling.ray_internals.start import OwnNode
from deployments.fork_server import ahead

EMBEDDED = tuple(configs.load("embedded").deployed())
NODE = OwnNode(["worker.py", "--node"], {"OF_RAY": "1"})


@pytest.mark.parametrize("woken", ["smollm2-135m-instruct", "supertonic-3", "", "of-another-interpreter"])
def test_it_has_the_plan_of_the_engine_that_is_woken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, woken: str
) -> None:
    begun: list[tuple[list[str], dict[str, Any]]] = []
    plans = {model.deployment: shlex.join([sys.executable, "enter.py", model.id]) for model in EMBEDDED}
    plans |= {EMBEDDED[0].deployment: "/elsewhere/python enter.py of-another"}
    place = SimpleNamespace(make_folder=lambda: None, opened_log=lambda: os.open(tmp_path / "log", os.O_CREAT))
    monkeypatch.setattr(ahead, "commands", lambda _: plans)
    monkeypatch.setattr(ahead, "Place", lambda *_: place)
    monkeypatch.setattr(ahead, "server_command", lambda _, program, plan: [program, plan])
    monkeypatch.setattr(ahead.subprocess, "Popen", lambda command, **options: begun.append((command, options)))
    ahead.start_server(EMBEDDED, EMBEDDED[0].id if woken == "of-another-interpreter" else woken, NODE)
    if woken in ("", "of-another-interpreter"):
        assert begun == []
        return
    ((command, options),) = begun
    assert command == ["worker.py", woken, ahead.AT_ONCE]
    assert options["env"] == os.environ | NODE.environment
