"""Workers of a server that lives on: what a fork has, what is refused, and the way around `setup_worker.py`."""

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private.runtime_env.context import RuntimeEnvContext
from ray.core.generated.common_pb2 import Language

from deployments.fork_server import footprint, server, shortcut
from deployments.fork_server.worker import MOST_BYTES
from tests.fork_server.node import ENTER, ROOT, Node, is_alive, running
from tests.waiting import eventually


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running("numpy", "torch", "no_such_module_at_all", GIVEN="by the plan") as node:
        assert node.reason(node.start()) == "no fork server is running yet"
        node.await_server()
        yield node


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
    for file in (place.socket, f"{place.socket}.lock", place.log):
        assert os.stat(file).st_mode & 0o777 == 0o600


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


def good(node: Node, **changes: Any) -> dict[str, Any]:
    """A request as `enter.py` makes it."""
    request = {
        "version": node.place.version,
        "argv": node.argv,
        "environ": {"PATH": os.environ["PATH"]},
        "cwd": str(node.folder),
        "oom_score_adj": 0,
    }
    return request | changes


def reply_to(node: Node, body: bytes, *, says_size: int | None = None, files: int = 3) -> bytes:
    """The answer of the server to `body`: a pid, or nothing."""
    return reply_and_output(node, body, says_size=says_size, files=files)[0]


def reply_and_output(node: Node, body: bytes, *, says_size: int | None = None, files: int = 3) -> tuple[bytes, bytes]:
    """The same, and all that a fork has written until it ended."""
    reader, writer = os.pipe()
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(node.place.socket)
            size = len(body) if says_size is None else says_size
            socket.send_fds(connection, [size.to_bytes(4, "big")], [writer] * files)
            connection.sendall(body)
            connection.shutdown(socket.SHUT_WR)  # so a fork is told nothing, and ends
            reply = connection.recv(16)
    except (BrokenPipeError, ConnectionResetError):
        reply = b""
    finally:
        os.close(writer)
    with open(reader, "rb") as output:
        return reply, output.read()


REFUSED: dict[str, tuple[dict[str, Any], ...]] = {
    "it does not start a worker": tuple({"argv": argv} for argv in (["/bin/sh", "-c", ""], [], "worker.py", None, [1])),
    "values that are not strings": ({"environ": {"A": 1}}, {"environ": ["A=1"]}),
    "an invalid name": ({"environ": {"A=B": "1"}}, {"environ": {"": "1"}}),
    "lacks a working directory or": ({"cwd": 3}, *({"oom_score_adj": score} for score in ("0", True, 1001, -1001))),
    "": ({"environ": {"A": "1\0"}}, {"cwd": "/no/such/folder"}),  # of which the fork itself ends
}


def test_another_program_and_fields_of_other_types_are_refused(node: Node) -> None:
    for reason, rows in REFUSED.items():
        bodies = [json.dumps(good(node, **changes)).encode() for changes in rows]
        assert [body for body in bodies if reply_to(node, body) or node.reason(node.start())] == []
        assert node.log.count(reason) == len(rows) or not reason
    assert not any(reply_to(node, body) for body in (b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"null"))
    assert node.log.count("it is not a JSON object") == 2


@pytest.mark.parametrize("files", [0, 2, 4])
def test_files_that_are_not_three_are_refused_and_closed(node: Node, files: int) -> None:
    (server,) = node.server_pids()
    body = json.dumps(good(node)).encode()
    before = len(os.listdir(f"/proc/{server}/fd"))
    for _ in range(3):
        assert reply_to(node, body, files=files) == b""
    eventually(lambda: len(os.listdir(f"/proc/{server}/fd")) == before, why=lambda: "the server keeps files open")


@pytest.mark.parametrize(("size", "reason"), [(MOST_BYTES, "ends after"), (MOST_BYTES + 1, "at most")])
def test_a_request_has_a_longest_length(node: Node, size: int, reason: str) -> None:
    before = len(node.log)
    assert reply_to(node, b"{}", says_size=size) == b""
    eventually(lambda: reason in node.log[before:], why=lambda: node.log)


def test_who_says_nothing_holds_nobody_up_for_long(node: Node) -> None:
    before = len(node.log)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(node.place.socket)
        eventually(lambda: "it cannot be read: timed out" in node.log[before:], why=lambda: node.log)
    assert node.start()["pid"]


def test_a_fork_whose_asker_has_gone_ends_and_has_run_nothing(node: Node) -> None:
    pid, output = reply_and_output(node, json.dumps(good(node)).encode())
    assert output == b""
    eventually(lambda: not is_alive(int(pid)), why=lambda: "a fork runs that nobody wants")


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
    monkeypatch.setattr(os, "execv", lambda _, args: ran.append(args))
    shortcut.take(arguments())
    (*_, line), command = ran
    assert shlex.split(line) == ["exec", *command]


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
