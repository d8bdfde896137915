"""The way around `setup_worker.py`: the same command as Ray's, and Ray's own way for whatever is not ours."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private.runtime_env.context import RuntimeEnvContext
from ray.core.generated.common_pb2 import Language

from deployments.fork_server import shortcut
from tests.fork_server.node import ENTER, ROOT, Node

SETUP = Path(ray.__file__).parent / "_private/workers/setup_worker.py"
PYTHON = shlex.join(["/a path/python", "-I", "-S", str(ENTER), json.dumps({"modules": ["a b", "it's"]})])
WORKER = ["/ray/default_worker.py", "--node-id=0123", "--name=with a blank"]


def arguments(python: str = PYTHON, language: str = "PYTHON", **context: Any) -> list[str]:
    """Of `setup_worker.py`, as raylet writes them."""
    serialized = RuntimeEnvContext(py_executable=python, **context).serialize()
    return [WORKER[0], f"--serialized-runtime-env-context={serialized}", f"--language={language}", *WORKER[1:]]


def test_ray_would_have_run_the_same_command(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(os, "execvp", lambda _, args: ran.append(args))
    RuntimeEnvContext(py_executable=PYTHON).exec_worker(list(WORKER), Language.PYTHON)
    ((*_, line),) = ran
    assert shlex.split(line) == ["exec", *(shortcut.command_of(arguments()) or ())]


@pytest.mark.parametrize(
    "others",
    [
        arguments(env_vars={"A": "b"}),
        arguments(command_prefix=["nice"]),
        arguments(override_worker_entrypoint="/other.py"),
        arguments(java_jars=["a.jar"]),
        arguments("/usr/bin/python"),
        arguments("podman run -v /a:/a image python"),
        arguments(language="JAVA"),
        [WORKER[0], "--language=PYTHON"],
        [],
    ],
)
def test_what_is_not_exactly_ours_is_left_to_ray(others: list[str]) -> None:
    assert shortcut.command_of(others) is None
    shortcut.take(others)


def test_what_cannot_be_read_is_left_to_ray() -> None:
    shortcut.take([WORKER[0], "--serialized-runtime-env-context={", "--language=PYTHON"])
    shortcut.take(arguments("/no/such/python -I -S " + str(ENTER)))


PATHS = f"{ROOT}{os.pathsep}{ROOT / 'deployments/fork_server/site'}"


def started(node: Node, **environ: str) -> subprocess.CompletedProcess[str]:
    """A worker as raylet starts it, on a machine without the shell that Ray's own way needs."""
    python = shlex.join([sys.executable, "-I", "-S", str(ENTER), node.plan])
    serialized = RuntimeEnvContext(py_executable=python).serialize()
    first, *more = node.argv
    command = [sys.executable, str(SETUP), first, f"--serialized-runtime-env-context={serialized}", *more]
    environment = os.environ | {"RAY_RAYLET_PID": str(node.raylet.pid), "PATH": "/nowhere"} | environ
    return subprocess.run(
        [*command, "--language=PYTHON"], env=environment, capture_output=True, text=True, cwd=node.folder, check=False
    )


def test_a_worker_is_forked_without_a_python_that_imports_ray(node: Node) -> None:
    worker = json.loads(started(node, PYTHONPATH=PATHS).stdout)
    assert worker["argv"] == node.argv
    assert node.reason(worker) == ""


def test_without_the_repository_on_the_path_ray_goes_its_own_way(node: Node) -> None:
    assert "bash" not in started(node, PYTHONPATH=PATHS).stderr
    assert "FileNotFoundError" in started(node, PYTHONPATH="").stderr


def test_other_pythons_import_next_to_nothing() -> None:
    listed = "import sys; print([name for name in sys.modules if name.startswith(('deployments', 'ray'))])"
    told = subprocess.run(
        [sys.executable, "-c", listed],
        env=os.environ | {"PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "[]"
