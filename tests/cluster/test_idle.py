"""What a graph that was really started keeps running, and what reaches it: nothing slower or larger goes unnoticed."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
import ray
from ray._private.runtime_env.context import RuntimeEnvContext

from benchmarks.speed.idle_memory import memory_mib, title
from deployments.fork_server.plan import ENTER
from tests.cluster.conftest import Server
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

T = TypeVar("T")

SETUP = Path(ray.__file__).with_name("_private") / "workers/setup_worker.py"

ALWAYS = {
    "gcs_server",
    "raylet",
    "ray::DashboardAgent",
    "ray::RuntimeEnvAgent",
    "ray::ServeController",
    "ray::ProxyActor",
    "ray::HAProxyManager",
    "ray::ServeReplica:parlance:ingress",
    "haproxy",
}
"""What runs while nothing is asked, beside the fork server. Ray's Python processes are 50 to 150 MiB each."""

MOST_MIB = 750
"""Of all these together, as PSS, on a graph that has served nothing yet."""

OF_ENGINES = ("libtorch", "onnxruntime", "ctranslate2")
"""Libraries of hundreds of megabytes."""


def always(server: Server, measure: Callable[[psutil.Process], T]) -> dict[str, T]:
    """By title, what `measure` gives of each process that is no engine, no child of one and no spare worker."""
    found: dict[str, T] = {}

    def look() -> dict[str, T]:
        found.clear()
        for process in psutil.Process(server.pid).children(recursive=True):
            with suppress(psutil.Error, OSError):  # it has ended: HAProxy is replaced at each change of its backends
                if (name := title(process)) in ALWAYS or not _may_end(process):
                    found[name] = measure(process)
        return found

    eventually(lambda: look().keys() == ALWAYS, 30, lambda: f"not as expected: {found.keys() ^ ALWAYS}")
    return found


def _may_end(process: psutil.Process) -> bool:
    """Whether it is there for an engine: those run other programs, for grammars or sounds."""
    lineage = [title(each) for each in (process, *process.parents())]
    return any(name.startswith(("ray::ServeReplica", "ray::IDLE", "parlance::")) for name in lineage)


@pytest.mark.smoke
def test_a_worker_starts_without_a_python_that_imports_ray(server: Server, tmp_path: Path) -> None:
    """As the raylet would start one, on a machine without the shell that Ray's own way needs."""
    worker = tmp_path / "worker.py"
    worker.write_text("print('a worker')")
    python = shlex.join([sys.executable, "-I", "-S", str(ENTER), "{}"])
    context = f"--serialized-runtime-env-context={RuntimeEnvContext(py_executable=python).serialize()}"
    command = [sys.executable, str(SETUP), str(worker), context, "--language=PYTHON"]
    environment = always(server, psutil.Process.environ)["raylet"] | {"PATH": "/nowhere"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "a worker", done.stderr


@pytest.mark.smoke
def test_what_always_runs_is_small(server: Server) -> None:
    sizes = always(server, lambda process: round(memory_mib(process)[0]))
    assert sum(sizes.values()) < MOST_MIB, sizes


@pytest.mark.smoke
def test_no_process_but_engines_has_libraries_of_engines(server: Server) -> None:
    for name, mapped in always(server, lambda process: {Path(one.path).name for one in process.memory_maps()}).items():
        assert not [library for library in mapped if any(part in library for part in OF_ENGINES)], name


@pytest.mark.smoke
def test_the_controller_runs_with_the_settings_of_an_idle_graph(server: Server) -> None:
    environment = always(server, psutil.Process.environ)["ray::ServeController"]
    assert environment["RAY_SERVE_CONTROL_LOOP_INTERVAL_S"] == "1.0"
    assert environment["RAY_SERVE_AUTOSCALING_METRIC_RECORD_INTERVAL_FACTOR"] == "0.5"
    assert environment["RAY_SERVE_METRICS_EXPORT_INTERVAL_MS"] == "5000"
