"""Actors in workers that were forked, in a Ray of their own: each way in which Ray ends a worker. Prints JSON.

python -m tests.cluster.forked_actors ends      what becomes of an actor that is ended in each way
python -m tests.cluster.forked_actors memory    what becomes of one that Ray's memory monitor kills
"""

import json
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from deployments.fork_server.plan import ENTER
from tests.fork_server.node import is_alive, open_paths
from tests.waiting import eventually

PLAN = json.dumps({"quiet_s": 0, "modules": ["ray"], "environment": {}})
PYTHON = f"{shlex.quote(sys.executable)} -I -S {shlex.quote(str(ENTER))} {shlex.quote(PLAN)}"


@ray.remote(num_cpus=0.1, runtime_env={"py_executable": PYTHON})
class Forked:
    """Tells what it runs in."""

    def look(self) -> dict[str, Any]:
        context = ray.get_runtime_context()
        print("said by a fork", flush=True)
        return {
            "pid": os.getpid(),
            "parent": os.getppid(),
            "actor": context.get_actor_id(),
            "worker": context.get_worker_id(),
            "title": Path("/proc/self/cmdline").read_bytes().strip(b"\0").decode(),
        }

    def leave(self) -> None:
        ray.actor.exit_actor()

    def wait(self) -> None:
        time.sleep(600)


def servers() -> list[int]:
    """Fork servers of this session."""
    folder = f"{session()}/forks-"
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if any(path.startswith(folder) for path in open_paths(pid))]


def ready() -> int:
    """The fork server, once it forks."""
    ray.get(Forked.remote().look.remote())
    folder = Path(ray._private.worker.global_worker.node.get_session_dir_path())
    eventually(
        lambda: any("ready" in log.read_text() for log in folder.glob("logs/fork_server_*")), why=lambda: "no server"
    )
    (server,) = servers()
    return server


def ends() -> dict[str, Any]:
    """Each way to end an actor, and what was seen of it; then what is true of all."""
    server = ready()
    kills = {name: killed(server, name) for name in ("kill -9", "kill -15", "ray.kill")}
    found = {"kills": kills, "leaves": leaves(server), "forgotten": forgotten(server), "restarted": restarted(server)}
    return found | {"logged": logged(), "left": left()}


def killed(server: int, way: str) -> dict[str, Any]:
    """What becomes of a call when its actor is killed. The process is gone in the end."""
    actor = Forked.remote()
    seen: dict[str, Any] = ray.get(actor.look.remote())
    call = actor.wait.remote()
    if way == "ray.kill":
        ray.kill(actor)
    else:
        os.kill(seen["pid"], {"kill -9": signal.SIGKILL, "kill -15": signal.SIGTERM}[way])
    try:
        ray.get(call, timeout=60)
    except RayError as error:
        seen["error"] = type(error).__name__
    await_end(seen["pid"], way)
    return seen | {"forked": seen["parent"] == server}


def leaves(server: int) -> bool:
    """Whether an actor that ends itself was forked, and its process ends."""
    actor = Forked.remote()
    seen = ray.get(actor.look.remote())
    actor.leave.remote()
    await_end(seen["pid"], "leave")
    return bool(seen["parent"] == server)


def forgotten(server: int) -> bool:
    """Whether an actor was forked, and its process ends once nobody holds a handle."""
    actor = Forked.remote()
    seen = ray.get(actor.look.remote())
    del actor
    await_end(seen["pid"], "the last handle")
    return bool(seen["parent"] == server)


def await_end(pid: int, way: str) -> None:
    eventually(lambda: not is_alive(pid), why=lambda: f"{pid} is alive after {way}", within_s=60)


def restarted(server: int) -> bool:
    """Whether an actor that may restart is forked again."""
    actor = Forked.options(max_restarts=1, max_task_retries=1).remote()
    first = ray.get(actor.look.remote())
    os.kill(first["pid"], signal.SIGKILL)
    second = ray.get(actor.look.remote(), timeout=60)
    return second["pid"] != first["pid"] and second["parent"] == server


def logged() -> int:
    """Workers whose log has what they said."""
    return sum("said by a fork" in log.read_text() for log in session().glob("logs/worker-*.out"))


def left() -> list[int]:
    """Processes of this session's forks that outlive Ray, some seconds later."""
    those = [*servers(), ray.get(Forked.remote().look.remote())["pid"]]
    ray.shutdown()
    eventually(lambda: not any(map(is_alive, those)), why=lambda: f"{those} outlive Ray", within_s=30)
    return [pid for pid in those if is_alive(pid)]


def memory() -> str:
    """The error of a call to an actor that was forked, on a node that has less memory than the monitor wants."""
    while True:  # until there is a server: the first actors are killed before one is
        try:
            ray.get(Forked.remote().wait.remote(), timeout=60)
        except RayError as error:
            (pid,) = re.findall(r"pid=(\d+)", str(error)) or [""]
            if f"forked {pid}\n" in "".join(log.read_text() for log in session().glob("logs/fork_server_*")):
                return type(error).__name__


def session() -> Path:
    """Ray's folder."""
    return Path(ray._private.worker.global_worker.node.get_session_dir_path())


if __name__ == "__main__":
    limits = {"memory_usage_threshold": 0.001, "memory_monitor_refresh_ms": 100} if sys.argv[1] == "memory" else {}
    ray.init(
        include_dashboard=False, log_to_driver=False, num_cpus=2, object_store_memory=100_000_000, _system_config=limits
    )
    sys.stdout.write(json.dumps({"ends": ends, "memory": memory}[sys.argv[1]]()))
