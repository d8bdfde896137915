"""Servers that are missing, dead, stopped, of another version or unfit: each worker starts all the same."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from deployments.fork_server.enter import REASON
from tests.fork_server.node import Node, eventually, is_alive, running


def was_forked(node: Node, worker: dict[str, object]) -> bool:
    """Whether a server made it, as it says itself and as the server does."""
    forked = REASON not in worker["environ"]  # type: ignore[operator]
    assert forked == (f"forked {worker['pid']}\n" in node.log)
    return forked


def test_the_first_worker_leaves_a_server_and_workers_at_once_leave_one() -> None:
    with running() as node:
        first = [node.popen() for _ in range(3)]
        assert all('"argv"' in worker.communicate(timeout=100)[0] for worker in first)
        server = node.await_server()
        eventually(lambda: node.server_pids() == [server], lambda: f"several servers run: {node.server_pids()}")
        assert was_forked(node, node.start())


def test_a_killed_server_is_replaced() -> None:
    with running() as node:
        node.start()
        os.kill(first := node.await_server(), signal.SIGKILL)
        eventually(lambda: not is_alive(first), lambda: "it lives")
        worker = node.start()
        assert "Connection refused" in worker["environ"][REASON]
        eventually(lambda: node.log.count("ready") == 2, lambda: node.log)
        assert was_forked(node, node.start())


def test_running_forks_outlive_the_server() -> None:
    with running() as node:
        node.start()
        server = node.await_server()
        worker = node.popen("--hold")
        assert worker.stdout
        assert '"argv"' in worker.stdout.readline()
        pid = int(node.log.rsplit("forked ", 1)[1])
        os.kill(server, signal.SIGKILL)
        eventually(lambda: not is_alive(server), lambda: "it lives")
        assert is_alive(pid)
        os.kill(pid, signal.SIGKILL)
        assert worker.communicate(timeout=60)[0] == ""


def test_a_stopped_server_is_not_waited_for_and_forks_nothing_later() -> None:
    with running() as node:
        node.start()
        os.kill(server := node.await_server(), signal.SIGSTOP)
        worker = node.start()
        assert "timed out" in worker["environ"][REASON]
        os.kill(server, signal.SIGCONT)
        eventually(lambda: "forked" in node.log, lambda: node.log)  # what has waited
        late = int(node.log.rsplit("forked ", 1)[1])
        eventually(lambda: not is_alive(late), lambda: "a second worker of the same id runs")
        assert was_forked(node, node.start())


def test_another_version_is_not_used_and_makes_way() -> None:
    with running() as node:
        node.start()
        old = node.await_server()
        other = node.plan.replace('"ray"', '"ray", "json"')
        worker = node.popen("--other", plan=other)
        assert "it refused" in worker.communicate(timeout=100)[0]
        eventually(lambda: not is_alive(old), lambda: "the old one stays")
        eventually(lambda: node.log.count("ready") == 2, lambda: node.log)
        assert "wants a server of another version" in node.log


def test_a_module_that_leaves_a_thread_makes_no_server(tmp_path: Path) -> None:
    thread = "threading.Thread(target=threading.Event().wait, daemon=True)"
    (tmp_path / "lingers.py").write_text(f"import threading\n{thread}.start()")
    with running("lingers") as node:
        worker = node.start(PYTHONPATH=str(tmp_path))
        assert worker["environ"][REASON]
        eventually(lambda: "2 threads run" in node.log, lambda: node.log)
        eventually(lambda: not node.server_pids(), lambda: "it stays")
        assert not Path(node.place.socket).exists()


def test_a_module_that_leaves_a_file_open_makes_no_server(tmp_path: Path) -> None:
    (tmp_path / "keeps.py").write_text("import socket\nkept = socket.socket()")
    with running("keeps") as node:
        node.start(PYTHONPATH=str(tmp_path))
        eventually(lambda: "are open" in node.log, lambda: node.log)


def test_a_folder_that_others_may_write_is_not_used() -> None:
    with running() as node:
        node.place.folder.mkdir(parents=True)
        node.place.folder.chmod(0o770)
        assert node.start()["environ"][REASON]
        assert not node.place.log.exists()


def test_what_is_no_start_of_ray_starts_without_a_server() -> None:
    with running() as node:
        node.place.folder.parent.parent.joinpath("logs").rmdir()
        worker = node.start()
        assert worker["environ"][REASON]


def test_a_server_ends_with_its_raylet_also_while_it_imports(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(600)")
    with running("slow") as node:
        node.start(PYTHONPATH=str(tmp_path))
        eventually(lambda: node.server_pids(), lambda: "no server")
    # `running` ends the raylet, and fails where a server stays
