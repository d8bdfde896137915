"""What is no start of a worker is refused, and the server lives on."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import pytest

from deployments.fork_server.worker import MOST_BYTES
from tests.fork_server.node import Node, is_alive
from tests.waiting import eventually


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
    """What the server answers to `body`: a pid, or nothing."""
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


def test_a_good_request_is_answered(node: Node) -> None:
    assert int(reply_to(node, json.dumps(good(node)).encode())) > 0


@pytest.mark.parametrize(
    "changes",
    [
        {"argv": ["/bin/sh", "-c", "true"]},
        {"argv": []},
        {"argv": "default_worker.py"},
        {"argv": None},
        {"argv": [1, 2]},
        {"environ": {"A": 1}},
        {"environ": ["A=1"]},
        {"environ": {"A=B": "1"}},
        {"environ": {"": "1"}},
        {"environ": {"A": "1\0"}},
        {"cwd": 3},
        {"cwd": "/no/such/folder"},
        {"oom_score_adj": "0"},
        {"oom_score_adj": True},
        {"oom_score_adj": 1001},
        {"oom_score_adj": -1001},
    ],
    ids=lambda changes: "-".join(f"{name}={value!r}" for name, value in changes.items()),
)
def test_another_program_and_fields_of_other_types_are_refused(node: Node, changes: dict[str, Any]) -> None:
    assert reply_to(node, json.dumps(good(node, **changes)).encode()) == b""
    assert node.start()["pid"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"null"], ids=lambda body: repr(body[:4])
)
def test_what_is_no_json_object_is_refused(node: Node, body: bytes) -> None:
    assert reply_to(node, body) == b""
    assert node.start()["pid"]


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
