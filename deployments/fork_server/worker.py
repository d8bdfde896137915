"""Requests for a worker, and how a fork of the server becomes that worker."""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.fork_server.enter import GO, peer

MOST_BYTES = 4 << 20
"""Arguments and environment of a process are at most 2 MiB on Linux; JSON may spell a byte in six."""

RECEIVED_WITHIN_S = 2.0
GO_WITHIN_S = 5.0


class RefusedError(Exception):
    """Not a request for a worker; the sentence says why."""


class OutdatedError(RefusedError):
    """It wants a server of another version."""


@dataclass(frozen=True, slots=True)
class Request:
    """A worker that is wanted. `fds` are its standard input, output and error."""

    argv: list[str]
    environ: dict[str, str]
    cwd: str
    oom_score_adj: int
    fds: list[int]


def receive(connection: socket.socket, *, version: str, program: str) -> Request:
    """Reads the request on `connection`, made by the user who runs this. Its files are closed if it is refused.

    Args:
        connection: just accepted.
        version: of this server.
        program: the only one that is run, Ray's `default_worker.py`.

    Raises RefusedError; OutdatedError where it is in order, but for a server of another version.
    """
    connection.settimeout(RECEIVED_WITHIN_S)
    if (uid := peer(connection)) != os.geteuid():
        raise RefusedError(f"it comes from user {uid}")
    fds: list[int] = []
    try:
        head, fds, flags, _ = socket.recv_fds(connection, 4, 3)
        if len(head) < 4 or len(fds) != 3 or flags & socket.MSG_CTRUNC:
            raise RefusedError(f"it begins with {len(head)} bytes and {len(fds)} files; 4 and 3 are expected")
        return _read(_body(connection, int.from_bytes(head, "big")), version, program, fds)
    except BaseException as error:
        for fd in fds:
            os.close(fd)
        if isinstance(error, (OSError, ValueError, RecursionError)):
            raise RefusedError(f"it cannot be read: {error}") from error
        raise


def _body(connection: socket.socket, size: int) -> bytes:
    if size > MOST_BYTES:
        raise RefusedError(f"it has {size} bytes; at most {MOST_BYTES} are read")
    body, end_s = bytearray(), time.monotonic() + RECEIVED_WITHIN_S
    while len(body) < size:
        connection.settimeout(max(0.001, end_s - time.monotonic()))  # also of one who sends a byte at a time
        part = connection.recv(size - len(body))
        if not part:
            raise RefusedError(f"it ends after {len(body)} of {size} bytes")
        body += part
    return bytes(body)


def _read(body: bytes, version: str, program: str, fds: list[int]) -> Request:
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise RefusedError("it is not a JSON object")
    argv, environ, cwd = fields.get("argv"), fields.get("environ"), fields.get("cwd")
    score = fields.get("oom_score_adj")
    if not _are_strings(argv) or not argv or argv[0] != program:
        raise RefusedError("it does not start a worker of Ray")
    if not isinstance(environ, dict) or not _are_strings([*environ, *environ.values()]):
        raise RefusedError("its environment has values that are not strings")
    if any(not name or "=" in name for name in environ):
        raise RefusedError("its environment has an invalid name")
    if not isinstance(cwd, str) or type(score) is not int or not -1000 <= score <= 1000:
        raise RefusedError("it lacks a working directory or an OOM score")
    if fields.get("version") != version:
        raise OutdatedError("it needs a fork server of another version")
    return Request(argv, environ, cwd, score, fds)


def _are_strings(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) and "\0" not in value for value in values)


def fork(request: Request, connection: socket.socket) -> int:
    """The pid of a process that takes over `request`; 0 in it, where the asker on `connection` still wants it."""
    pid = os.fork()
    try:
        if not pid:
            _take_over(request)
            connection.settimeout(GO_WITHIN_S)
            connection.sendall(str(os.getpid()).encode())
            if connection.recv(1) != GO:
                os._exit(1)
    except BaseException:
        os._exit(1)  # the asker hears nothing, and becomes the worker itself
    for fd in request.fds:
        os.close(fd)
    return pid


def run() -> None:
    """The rest of this process's life, as `python *sys.argv` would live it."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [os.path.dirname(sys.argv[0]), *(path for path in folders if path and path not in sys.path)]
    gc.enable()
    runpy.run_path(sys.argv[0], run_name="__main__")


def _take_over(request: Request) -> None:
    """All that a process has from its parent, as `request` has it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)
    for fd, source in enumerate(request.fds):
        os.dup2(source, fd)
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.environ)
    with suppress(OSError):  # less than the server's own needs a privilege
        Path("/proc/self/oom_score_adj").write_text(str(request.oom_score_adj))
    sys.argv = list(request.argv)
    # What would draw the same in all forks. Python's `random` seeds itself.
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(int.from_bytes(os.urandom(7), "big"))
