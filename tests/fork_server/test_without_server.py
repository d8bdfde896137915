"""Servers that are missing, dead, stopped, of another version or unfit: each worker starts all the same."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.fork_server.enter import AT_ONCE
from tests.fork_server.node import ENTER, Node, is_alive, running
from tests.waiting import eventually


@pytest.fixture
def node() -> Iterator[Node]:
    """One of its own, which has no server yet."""
    with running() as node:
        yield node


@pytest.fixture
def server(node: Node) -> int:
    """The pid of the server that a first worker has left."""
    node.start()
    return node.await_server()


def test_the_first_worker_leaves_a_server_and_workers_at_once_leave_one(node: Node) -> None:
    first = [node.popen() for _ in range(3)]
    assert all('"argv"' in worker.communicate(timeout=100)[0] for worker in first)
    server = node.await_server()
    eventually(lambda: node.server_pids() == [server], why=lambda: f"several servers run: {node.server_pids()}")
    assert node.reason(node.start()) == ""


def test_a_killed_server_is_replaced(node: Node, server: int) -> None:
    os.kill(server, signal.SIGKILL)
    eventually(lambda: not is_alive(server), why=lambda: "it lives")
    worker = node.start()
    assert "Connection refused" in node.reason(worker)
    eventually(lambda: node.log.count("ready") == 2, why=lambda: node.log)
    assert node.reason(node.start()) == ""


def test_running_forks_outlive_the_server(node: Node, server: int) -> None:
    worker = node.popen("--hold")
    assert worker.stdout
    assert '"argv"' in worker.stdout.readline()
    pid = int(node.log.rsplit("forked ", 1)[1])
    os.kill(server, signal.SIGKILL)
    eventually(lambda: not is_alive(server), why=lambda: "it lives")
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)
    assert worker.communicate(timeout=60)[0] == ""


def test_a_stopped_server_is_not_waited_for_and_forks_nothing_later(node: Node, server: int) -> None:
    os.kill(server, signal.SIGSTOP)
    worker = node.start()
    assert "timed out" in node.reason(worker)
    os.kill(server, signal.SIGCONT)
    eventually(lambda: "forked" in node.log, why=lambda: node.log)  # what has waited
    late = int(node.log.rsplit("forked ", 1)[1])
    eventually(lambda: not is_alive(late), why=lambda: "a second worker of the same id runs")
    assert node.reason(node.start()) == ""


def test_another_version_is_not_used_and_makes_way(node: Node, server: int) -> None:
    other = node.plan.replace('"ray"', '"ray", "json"')
    with node.popen(plan=other) as worker:
        assert worker.stdout
        assert "it refused" in node.reason(json.loads(worker.stdout.readline()))
    eventually(lambda: not is_alive(server), why=lambda: "the old one stays")
    eventually(lambda: node.log.count("ready") == 2, why=lambda: node.log)
    assert "needs a fork server of another version" in node.log


LEFT = {
    "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()": "it runs 2 threads",
    "import socket\nkept = socket.socket()": "it has open files",
}


@pytest.mark.parametrize("module", LEFT, ids=["a thread", "a file"])
def test_a_module_that_leaves_a_thread_or_an_open_file_makes_no_server(tmp_path: Path, module: str) -> None:
    (tmp_path / "leaves.py").write_text(module)
    with running("leaves") as node:
        worker = node.start(PYTHONPATH=str(tmp_path))
        assert node.reason(worker)
        eventually(lambda: LEFT[module] in node.log, why=lambda: node.log)
        eventually(lambda: not node.server_pids(), why=lambda: "it stays")
        assert not Path(node.place.socket).exists()


def test_a_folder_that_others_may_write_is_not_used(node: Node) -> None:
    node.place.folder.mkdir(parents=True)
    node.place.folder.chmod(0o770)
    assert node.start()["pid"]
    assert not node.place.log.exists()


def test_a_server_whose_log_cannot_be_written_is_not_left_behind(node: Node) -> None:
    node.place.log.parent.rmdir()
    assert node.start()["pid"]
    assert not node.server_pids()


def test_a_worker_that_ray_did_not_name_a_folder_for_starts_without_a_server(node: Node) -> None:
    command = [sys.executable, "-I", "-S", str(ENTER), node.plan, str(node.program), "--worker-type=WORKER"]
    told = json.loads(subprocess.check_output(command))
    assert told["argv"] == [str(node.program), "--worker-type=WORKER"]


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that the import of the module `gated` waits for."""
    gate = tmp_path / "gate"
    (tmp_path / "gated.py").write_text(f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return gate


def test_a_worker_waits_for_a_server_that_was_started_with_the_graph(gate: Path) -> None:
    with running("gated") as node, node.start_server() as server:
        eventually(lambda: AT_ONCE in lock_text(node), why=lambda: "it does not import")
        with node.popen() as worker:
            assert worker.stdout
            eventually(lambda: waits(worker.pid), why=lambda: "the worker does not wait")
            gate.touch()
            assert node.reason(json.loads(worker.stdout.readline())) == ""
        node.raylet.kill()
        server.wait(timeout=30)


@pytest.mark.usefixtures("gate")
def test_a_worker_does_not_wait_for_a_server_that_ended_amid_its_imports() -> None:
    with running("gated") as node, node.start_server() as server:
        eventually(lambda: AT_ONCE in lock_text(node), why=lambda: "it does not import")
        server.kill()
        assert node.reason(node.start()) == "no fork server is running yet"


@pytest.mark.usefixtures("gate")
def test_a_worker_does_not_wait_for_a_server_that_a_worker_left() -> None:
    with running("gated") as node:
        node.start()
        eventually(lambda: lock_text(node), why=lambda: "it does not import")
        assert node.reason(node.start()) == "no fork server is running yet"


def lock_text(node: Node) -> str:
    lock = Path(f"{node.place.socket}.lock")
    return lock.read_text() if lock.exists() else ""


def waits(pid: int) -> bool:
    """Says if a worker sleeps between two looks at the lock."""
    return (
        "nanosleep" in Path(f"/proc/{pid}/wchan").read_text() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "S"
    )


STRANGER = """
import os, signal, socket, sys
strangers = socket.socket(socket.AF_UNIX)
strangers.bind(sys.argv[1])
os.setuid(65534)
strangers.listen()
print("listens", flush=True)
strangers.accept()[0].recv(1) and print("heard something", flush=True)
signal.pause()
"""


def test_a_server_of_another_user_is_told_nothing(node: Node) -> None:
    if os.geteuid():
        pytest.skip("only root can be two users")
    node.place.make_folder()
    command = [sys.executable, "-c", STRANGER, node.place.socket]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout
        assert stranger.stdout.readline() == "listens\n"
        assert "another user runs it (65534)" in node.reason(node.start())
        stranger.kill()
        assert stranger.stdout.read() == ""


def test_a_server_ends_with_its_raylet_also_while_it_imports(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(600)")
    with running("slow") as node:
        node.start(PYTHONPATH=str(tmp_path))
        eventually(lambda: node.server_pids(), why=lambda: "no server")
    # `running` ends the raylet, and fails where a server stays
