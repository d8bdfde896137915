"""Workers that were forked, beside workers that were not: what they have, and what they must not have in common."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deployments.fork_server import footprint, server
from tests.fork_server.node import Node


def test_a_fork_has_what_was_imported_and_no_reason(node: Node) -> None:
    worker = node.start("--one", "--two=3")
    assert {"ray", "torch", "numpy"} < set(worker["modules"])
    assert node.reason(worker) == ""


def test_a_fork_is_started_as_ray_starts_a_worker(node: Node) -> None:
    worker = node.start("--one", "--two=3", OWN="of this worker", PYTHONPATH="/of/this/worker")
    assert worker["name"] == "__main__"
    assert worker["argv"] == [*node.argv, "--one", "--two=3"]
    assert worker["cwd"] == str(node.folder)
    assert worker["environ"]["OWN"] == "of this worker"
    assert "GIVEN" not in worker["environ"]
    assert "OPENBLAS_NUM_THREADS" not in worker["environ"]
    assert worker["path"][:2] == [str(node.program.parent), "/of/this/worker"]
    assert not any(path.endswith("fork_server") for path in worker["path"])
    assert worker["group"] == worker["pid"]
    assert worker["niceness"] == os.getpriority(os.PRIO_PROCESS, 0)
    assert worker["child_signal"]
    assert worker["umask"] == _umask()


def test_a_fork_inherits_no_file_no_thread_and_nothing_of_ours(node: Node) -> None:
    worker = node.start()
    assert sorted(worker["files"]) == ["0", "1", "2"]
    assert worker["threads"] == 1
    assert not [name for name in worker["modules"] if name.split(".")[0] in ("deployments", "models", "contract")]


def test_metrics_tell_the_servers_memory_and_a_fork_from_others(node: Node) -> None:
    assert footprint.MODULE in node.start()["command"]
    assert not footprint.is_fork()
    assert footprint.memory_bytes(node.argv) > 100 << 20  # torch
    assert footprint.memory_bytes([]) == 0
    assert footprint.memory_bytes([*node.argv, "--node-id=fedcba9876543210"]) == 0


def test_what_a_server_has_left_takes_no_memory(tmp_path: Path) -> None:
    folder = tmp_path / "s/forks-01234567"
    folder.mkdir(parents=True)
    argv = [f"--temp-dir={tmp_path}", "--session-name=s", "--node-id=0123456789abcdef"]
    for content in ("", "no number", "4194305", str(os.getpid())):  # the last one is a process, but no server
        (folder / "interpreter.lock").write_text(content)
        assert footprint.memory_bytes(argv) == 0


def test_forks_draw_differently(node: Node) -> None:
    one, other = node.start()["drawn"], node.start()["drawn"]
    assert {"random", "uuid", "numpy", "torch", "worker", "class"} < one.keys() == other.keys()
    assert [name for name in one if one[name] == other[name]] == []


def test_a_forks_exit_and_output_are_its_own(node: Node) -> None:
    worker = node.popen("--exit")
    told, _ = worker.communicate(timeout=60)
    assert '"argv"' in told
    assert node.start()["pid"]  # and the server lives on


def test_a_module_that_is_not_there_is_said_and_passed_over(node: Node) -> None:
    assert "`no_such_module_at_all` was not imported: ModuleNotFoundError" in node.log


def test_files_of_the_server_are_for_its_user_only(node: Node) -> None:
    place = node.place
    assert place.folder.stat().st_mode & 0o777 == 0o700
    assert os.stat(place.socket).st_mode & 0o777 == 0o600
    assert place.log.stat().st_mode & 0o777 == 0o600


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def test_a_server_ends_that_nobody_has_asked_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.REST_S == 24 * 60 * 60
    monkeypatch.setattr(server, "REST_S", 0.01)
    raylet = os.pidfd_open(os.getpid())
    with server.listen(str(tmp_path / "socket")) as listener:
        assert not server.serve(listener, raylet, lambda connection: pytest.fail("nobody asks"))
    os.close(raylet)
