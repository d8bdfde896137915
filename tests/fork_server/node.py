"""A node without Ray's daemons: a process that stands for the raylet, a session's folder, and a worker that tells what
it is. Interpreter, Ray's library, server and forks are real.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.fork_server.enter import AT_ONCE, Place, server_command
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
ENTER = ROOT / "deployments/fork_server/enter.py"
WORKER = """
import ctypes, json, os, random, signal, sys, threading, uuid
def drawn():
    found = {"random": random.random(), "uuid": str(uuid.uuid4()), "hash": os.urandom(4).hex()}
    if numpy := sys.modules.get("numpy"): found["numpy"] = float(numpy.random.random())
    if torch := sys.modules.get("torch"): found["torch"] = float(torch.rand(()))
    if "ray" in sys.modules:
        import ray
        found |= {"worker": ray.WorkerID.from_random().hex(), "class": ray._raylet.ActorClassID.from_random().hex()}
    return found
print(json.dumps({
    "name": __name__, "argv": sys.argv, "command": sys.orig_argv,
    "path": sys.path, "pid": os.getpid(), "group": os.getpgid(0),
    "environ": dict(os.environ), "cwd": os.getcwd(), "modules": sorted(sys.modules), "executable": sys.executable,
    "threads": len(os.listdir("/proc/self/task")),
    "files": [fd for fd in os.listdir("/proc/self/fd") if os.path.lexists("/proc/self/fd/" + fd)],
    "umask": os.umask(0), "child_signal": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
    "niceness": os.getpriority(os.PRIO_PROCESS, 0), "drawn": drawn(),
}), flush=True)
if "--hold" in sys.argv:
    signal.pause()
if "--exit" in sys.argv:
    sys.exit(7)
"""


@dataclass(frozen=True)
class Node:
    """Where workers are started as Ray does it."""

    folder: Path
    raylet: subprocess.Popen[bytes]
    plan: str

    @property
    def program(self) -> Path:
        """What stands for Ray's `default_worker.py`."""
        return self.folder / "packages/ray/_private/workers/default_worker.py"

    @property
    def argv(self) -> list[str]:
        """How Ray starts a worker."""
        return [str(self.program), f"--temp-dir={self.folder}", "--session-name=s", "--node-id=0123456789abcdef"]

    @property
    def place(self) -> Place:
        """Where the server of this interpreter is."""
        return Place(self.plan, self.argv)

    @property
    def log(self) -> str:
        """What servers have said."""
        return self.place.log.read_text() if self.place.log.exists() else ""

    def popen(self, *arguments: str, plan: str | None = None, **environ: str) -> subprocess.Popen[str]:
        """A worker, by way of `enter.py`."""
        command = [sys.executable, "-I", "-S", str(ENTER), plan or self.plan, *self.argv, *arguments]
        environment = os.environ | {"RAY_RAYLET_PID": str(self.raylet.pid)} | environ
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, cwd=self.folder, text=True)

    def start(self, *arguments: str, **environ: str) -> dict[str, Any]:
        """What a worker tells of itself.

        Only its line is awaited, not the end of the pipe: a server that was stopped still has it in a message.
        """
        with self.popen(*arguments, **environ) as process:
            assert process.stdout
            found: dict[str, Any] = json.loads(process.stdout.readline())
        return found

    def start_server(self) -> subprocess.Popen[bytes]:
        """A server that imports at once, as one that is started together with the graph."""
        self.place.make_folder()
        command = [*server_command(self.place, str(self.program), self.plan), AT_ONCE]
        environment = os.environ | {"RAY_RAYLET_PID": str(self.raylet.pid)}
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=self.place.opened_log())

    def reason(self, worker: dict[str, Any]) -> str:
        """Why a worker is no fork; nothing where it is one."""
        lines = [line.split(" ", 3) for line in self.log.splitlines() if "imports the libraries itself: " in line]
        (found,) = [rest.partition(": ")[2] for *_, pid, rest in lines if pid == str(worker["pid"])] or [""]
        assert (not found) == (f"forked {worker['pid']}\n" in self.log)
        return found

    def await_server(self) -> int:
        """The pid of the server, once it listens."""
        eventually(lambda: Path(self.place.socket).exists(), why=lambda: f"no server: {self.log}")
        return self.server_pids()[0]

    def server_pids(self) -> list[int]:
        """Servers of this node, by the sockets and locks that they hold open."""
        lock = f"{self.place.socket}.lock"
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and lock in open_paths(int(pid))]


def open_paths(pid: int) -> list[str]:
    """Files that a process has open; none if it is gone."""
    try:
        return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def running(*modules: str, **environment: str) -> Iterator[Node]:
    """A node whose servers import `modules`; at the end its raylet ends, and every server with it."""
    folder = Path(tempfile.mkdtemp(prefix="node-"))
    raylet = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"])
    plan = json.dumps({"quiet_s": 0, "modules": ["ray", *modules], "environment": environment})
    node = Node(folder, raylet, plan)
    node.program.parent.mkdir(parents=True)
    node.program.write_text(WORKER)
    (folder / "s/logs").mkdir(parents=True)
    try:
        yield node
    finally:
        servers = node.server_pids()
        raylet.kill()
        raylet.wait()
        for pid in servers:
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: not any(map(is_alive, servers)), why=lambda: "a server outlives its raylet", within_s=30)
        shutil.rmtree(folder)
