"""Stands in for `python` in front of Ray's worker, as `py_executable` of an engine's runtime environment.

    python -I -S enter.py PLAN default_worker.py --arguments ...

Asks the fork server of this node and interpreter for a process that runs the worker, and ends: Ray knows a worker by
what it reports of itself. Without an answer this process becomes `python default_worker.py ...`, and leaves behind a
server for the next one. Imports nothing of this project and nothing that is installed: each start waits for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import stat
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 2.0
"""A server answers in 20 to 40 ms. A stopped one, or one on a machine that swaps, is not waited for."""

ROOT = Path(__file__).resolve().parents[2]

AT_ONCE = "--at-once"
"""Argument of a server that imports while the graph starts, and a mark in its lock."""

IMPORTS_S = 60.0
"""Seconds for which a worker waits for such a server. On two free cores it needs 6 to 9; if it ends, nothing waits."""

LOOK_S = 0.02

GO = b"g"
"""Sent to a child that has reported its pid. Without it the child must not run: its asker has become the worker."""


class Place:
    """Place of the fork server of a worker's node and interpreter. Raises KeyError, OSError for what is no worker.

    Attributes:
        folder: in Ray's folder of the session, for this user only. Its path is short: a socket's may have 107 bytes.
        socket: on which the server listens.
        log: of the server.
        version: version of all files of a server; one of another version cannot be used.
    """

    def __init__(self, plan: str, worker: list[str]) -> None:
        session, self.folder = folders(worker)
        interpreter = _digest(sys.executable)
        self.socket = str(self.folder / interpreter)
        self.log = session / "logs" / f"fork_server_{interpreter}.log"
        # A folder of packages changes when one is installed in it or taken away.
        packages = [Path(worker[0]).parents[3], *Path(sys.executable).parents[1].glob("lib/python*/site-packages")]
        ours = sorted(Path(__file__).resolve().parent.glob("*.py"))
        changes = [*(folder.stat().st_mtime_ns for folder in packages), *(file.read_bytes() for file in ours)]
        self.version = _digest(plan, sys.version, worker[0], *changes)

    def make_folder(self) -> None:
        """Makes the folder where it is missing. Raises OSError where another user could put something there."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        require_private(self.folder)

    def opened_log(self) -> int:
        """The log, to append to."""
        return os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def require_private(folder: Path, *, replaceable: bool = True) -> None:
    """Raises PermissionError for a folder that other users can access, or can replace unless it is `replaceable`."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder that only this user can access")
    for parent in () if replaceable else folder.resolve().parents:
        status = parent.stat()
        is_sticky, is_writable = status.st_mode & stat.S_ISVTX, status.st_mode & 0o022
        if status.st_uid not in {0, os.geteuid()} or (is_writable and not is_sticky):
            raise PermissionError(f"other users may replace what is in {parent}")


def folders(worker: list[str]) -> tuple[Path, Path]:
    """Ray's folder of the session, and that of the fork servers of the node, by the arguments of one of its workers.

    Raises KeyError for what is no worker.
    """
    options = dict(option.split("=", 1) for option in worker if option.startswith("--") and "=" in option)
    session = Path(options["--temp-dir"], options["--session-name"])
    return session, session / f"forks-{options['--node-id'][:8]}"


def main() -> None:
    """Asks, or becomes the worker. No failure of the way through a server may keep a worker from starting."""
    plan, worker = sys.argv[1], sys.argv[2:]
    with suppress(Exception):
        place = Place(plan, worker)
        await_imports(place.socket)
        try:
            ask(place.socket, place.version, worker)
            os._exit(0)  # Ray watches the process that registers as the worker, and no longer this one
        except FileNotFoundError:
            reason = "no fork server is running yet"
        except Exception as error:
            reason = f"the fork server could not be used: {error or type(error).__name__}"
        place.make_folder()
        log = place.opened_log()
        os.write(
            log, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {os.getpid()} imports the libraries itself: {reason}\n".encode()
        )
        leave_server(place, worker[0], plan, log)
        os.close(log)
    os.execv(sys.executable, [sys.executable, *worker])


def await_imports(path: str) -> None:
    """Waits until a server that was started with the graph listens on the socket at `path`, if there is one."""
    end_s = time.monotonic() + IMPORTS_S
    while not os.path.exists(path) and imports_at_once(f"{path}.lock") and time.monotonic() < end_s:
        time.sleep(LOOK_S)


def imports_at_once(path: str) -> bool:
    """Says if a server that was started with the graph holds the lock at `path`."""
    with suppress(FileNotFoundError), open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return AT_ONCE in file.read()
    return False


def ask(path: str, version: str, worker: list[str]) -> int:
    """The pid of a new process that is the worker from now on. Raises OSError."""
    request = {
        "version": version,
        "argv": worker,
        "environ": dict(os.environ),
        "cwd": os.getcwd(),
        "oom_score_adj": int(Path("/proc/self/oom_score_adj").read_text()),
    }
    body = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(path)
        # Ray's folder is open to everybody, and all that is secret to a worker is in its environment.
        if (uid := peer(connection)) != os.geteuid():
            raise PermissionError(f"another user runs it ({uid})")
        socket.send_fds(connection, [len(body).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(body)
        pid = connection.recv(16)
        if not pid:
            raise ConnectionError("it refused the request")
        connection.sendall(GO)
    return int(pid)


def peer(connection: socket.socket) -> int:
    """The user at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def leave_server(place: Place, program: str, plan: str, log: int) -> None:
    """Starts a server that nothing waits for: a grandchild, because Ray kills the children of a worker that ends."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    try:
        # A group of its own, so that signals to that of Ray's worker pass it by; not a session, because the kernel
        # shares out the cores by session, and children would answer more slowly than replicas do otherwise.
        os.setpgid(0, 0)
        if not os.fork():
            _become_server(place, program, plan, log)
    finally:
        os._exit(0)


def _become_server(place: Place, program: str, plan: str, log: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, fd)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(ROOT)
    command = server_command(place, program, plan)
    os.execv(command[0], command)


def server_command(place: Place, program: str, plan: str) -> list[str]:
    """The command of a server; it runs in ROOT, where `-m` finds it whatever PYTHONPATH says."""
    server = ["-m", "deployments.fork_server.server", place.socket, place.version, program, plan]
    return [sys.executable, *server]


def _digest(*parts: object) -> str:
    return hashlib.blake2s("\0".join(map(str, parts)).encode(), digest_size=6).hexdigest()


if __name__ == "__main__":
    main()
