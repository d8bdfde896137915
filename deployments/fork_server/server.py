"""Imports what the engines of a node import, and forks a worker whenever `enter.py` asks for one.

    python -m deployments.fork_server.server SOCKET VERSION PROGRAM PLAN [--at-once]

`PLAN` is JSON, as plan.py makes it. The server begins when the cores are free, or at once; it imports at a low priority
and then checks that it can be forked: one thread, no files, no GPU, and no two forks that draw the same. Where that
does not hold it ends, and its log has the reason.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

from deployments.fork_server import worker
from deployments.fork_server.enter import AT_ONCE

FREE_CORES = 0.75
"""Share of two cores, or of the only one, that is idle if no request is served. A graph at rest leaves 0.9 of two."""

LATEST_S = 60.0
"""After these seconds on cores that are never free, imports begin all the same: later starts need them."""

STAT = "/proc/stat"

LOOK_S = 0.2
"""Between two looks whether the raylet is still there, and whether cores are free."""

NICENESS = 10
"""Of the imports. Beside engines that take all cores they take minutes; at the lowest priority it would be hours."""

ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""While modules are imported. Ray has it so for replicas of one CPU or less; and it is a pool of threads less."""

REST_S = 86_400.0
"""Without a request, until the server ends: half a gigabyte without use. The next start leaves a new one behind."""

TITLE = "parlance::ForkServer"


class UnforkableError(Exception):
    """A process with forks that would not work as workers; the sentence says why."""


def main() -> None:
    """Serves until the raylet ends; as a fork, is the worker until that ends."""
    path, version, program = sys.argv[1:4]
    plan = json.loads(sys.argv[4])
    del sys.path[0]  # the folder that this was started in
    raylet = os.pidfd_open(int(os.environ["RAY_RAYLET_PID"]))
    quiet_s = 0.0 if AT_ONCE in sys.argv else plan["quiet_s"]
    lock = lock_of(f"{path}.lock") if wait_until_idle(raylet, quiet_s) else None
    if lock is None:
        return
    prepare(plan, raylet)
    try:
        check({0, 1, 2, lock, raylet})
    except UnforkableError as error:
        sys.exit(f"this process cannot be forked into workers: {error}")
    listener = listen(path)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    say("ready")
    if serve(listener, raylet, partial(worker.receive, version=version, program=program)):
        listener.close()
        os.close(raylet)
        os.close(lock)
        worker.run()
    else:
        os.unlink(path)
        os._exit(0)  # taking all of it apart in order would take seconds


def lock_of(path: str) -> int | None:
    """The file that only one server of its name can lock; None where another one has."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    os.ftruncate(lock, 0)
    os.write(lock, " ".join([str(os.getpid()), *sys.argv[5:]]).encode())  # footprint.py and enter.py look there
    return lock


def has_ended(process: int, within_s: float) -> bool:
    """Says if the process of a pidfd ends within that time."""
    return bool(select.select([process], [], [], within_s)[0])


def wait_until_idle(raylet: int, quiet_s: float) -> bool:
    """Waits until cores were free for `quiet_s`; False if the raylet ends before.

    The request that waited for the first engine is being served when this begins.
    """
    began = quiet_since = now = time.monotonic()
    needed, idle = FREE_CORES * min(os.cpu_count() or 1, 2), idle_s()
    while now - quiet_since < quiet_s and now - began < LATEST_S:
        if has_ended(raylet, LOOK_S):
            return False
        (before, now), (idle_before, idle) = (now, time.monotonic()), (idle, idle_s())
        if idle - idle_before < needed * (now - before):
            quiet_since = now
    return not has_ended(raylet, 0)


def idle_s() -> float:
    """Idle seconds of all cores since the machine started."""
    with open(STAT) as file:
        return int(file.readline().split()[4]) / os.sysconf("SC_CLK_TCK")


def prepare(plan: dict[str, Any], raylet: int) -> None:
    """Imports all of `plan` in a thread, and ends this process if the raylet ends meanwhile."""
    os.environ.update(ENVIRONMENT | plan["environment"] | dict(os.environ))
    started = time.monotonic()
    gc.disable()  # half a million objects are made, and all of them stay
    thread = threading.Thread(target=import_all, args=(plan["modules"],))
    thread.start()
    while thread.is_alive():
        if has_ended(raylet, LOOK_S):
            os._exit(0)
    thread.join()
    for name in [name for name in sys.modules if name.partition(".")[0] == "deployments"]:
        del sys.modules[name]  # workers import it anew, and may find a newer one
    gc.collect()
    gc.freeze()
    say(f"imported {len(sys.modules)} modules in {time.monotonic() - started:.1f} s")


def import_all(modules: Iterable[str]) -> None:
    """Runs in a thread, because only a thread that ends can give way to everything else without a privilege."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
    with ids_of_the_kernel():
        for name in modules:
            try:
                importlib.import_module(name)
            except BaseException as error:  # whatever a library raises: a worker that needs it will say so
                say(f"`{name}` was not imported: {error!r}")


@contextmanager
def ids_of_the_kernel() -> Iterator[None]:
    """Has Ray draw ids of actor classes without its own generator, which seeds itself at its first draw.

    Importing `ray.serve` declares such classes. With a seed of before the fork, all workers would draw the same ids.
    """
    import ray.actor

    real = ray.actor.ActorClassID
    ray.actor.ActorClassID = SimpleNamespace(from_random=lambda: real(os.urandom(real.size())))
    try:
        yield
    finally:
        ray.actor.ActorClassID = real


def check(known: set[int]) -> None:
    """Raises UnforkableError where a fork of this process would not be as good as a process that was just started.

    `known` are the files that may be open.
    """
    from ray import WorkerID, _raylet

    _raylet.setproctitle(TITLE)  # type: ignore[attr-defined]
    if of_child(lambda: WorkerID.from_random().binary()) == of_child(lambda: WorkerID.from_random().binary()):
        raise UnforkableError("two forks would draw the same ids")
    if (threads := len(os.listdir("/proc/self/task"))) > 1:
        raise UnforkableError(f"it runs {threads} threads")
    if files := open_files() - known:
        raise UnforkableError(f"it has open files: {sorted(files)}")
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized():
        raise UnforkableError("CUDA is already initialised")


def open_files() -> set[int]:
    """Numbers of the files that this process has open."""
    listed = set(map(int, os.listdir("/proc/self/fd")))
    return {fd for fd in listed if os.path.lexists(f"/proc/self/fd/{fd}")}  # one was of the listing itself


def of_child(draw: Callable[[], bytes]) -> bytes:
    """Returns the result of `draw` in a fork."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writer, draw())
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with open(reader, "rb") as file:
        return file.read()


def listen(path: str) -> socket.socket:
    """A socket at `path` for this user only, in place of one that a killed server has left."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    usual = os.umask(0o177)
    listener.bind(path)
    os.umask(usual)  # which workers inherit
    listener.listen()
    return listener


def serve(listener: socket.socket, raylet: int, receive: Callable[[socket.socket], worker.Request]) -> bool:
    """Answers until the raylet ends, another version is wanted or nothing is: False. True in a fork, to be a worker."""
    watched: list[Any] = [listener, raylet]
    while listener in (ready := select.select(watched, [], [], REST_S)[0]) and raylet not in ready:
        connection, _ = listener.accept()
        with connection:
            try:
                request = receive(connection)
                pid = worker.fork(request, connection)
            except worker.OutdatedError as error:
                say(str(error))
                return False
            except Exception as error:
                say(f"refused a request: {error or repr(error)}")
                continue
        if not pid:
            return True
        say(f"forked {pid}")
    return False


def say(sentence: str) -> None:
    """A line in the log. Not by `logging`: every worker would inherit its handlers."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {os.getpid()} {sentence}\n")


if __name__ == "__main__":
    main()
