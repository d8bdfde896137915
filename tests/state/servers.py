"""Real PostgreSQL, Redis and S3 servers for tests: on loopback, in folders of their own, gone afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar

import pytest

from benchmarks.servers import free_port
from tests.waiting import eventually

S = TypeVar("S", "Postgres", "Redis", "Seaweed")

START_S = 30.0
UNPRIVILEGED = 65534
"""PostgreSQL refuses to run as root; then it runs as this user, who owns nothing but its folder."""


def find_binary(name: str) -> str | None:
    """Path of a server's program, also where Debian hides PostgreSQL's."""
    hidden = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return str(hidden[0]) if hidden else shutil.which(name)


class Postgres:
    """One PostgreSQL server. Without `fsync` it survives its own crash, not one of the machine, and is faster.

    Args:
        folder: for its data.
        settings: `name=value`, instead of those here.
        primary: the server that it replicates.

    Attributes:
        url: of database `postgres` on it.
    """

    def __init__(self, folder: Path, *settings: str, primary: Postgres | None = None) -> None:
        self._data = folder / "data"
        self.port = free_port()
        self._folder = folder
        self._settings = settings
        self.url = f"postgresql://parlance@127.0.0.1:{self.port}/postgres"
        if os.getuid() == 0:
            os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
        make = ["initdb", "--auth=trust", "--username=parlance", "--encoding=UTF8", "--locale=C", "--no-sync"]
        if primary:
            make = ["pg_basebackup", "--write-recovery-conf", "--no-sync", "--checkpoint=fast", "--dbname", primary.url]
        subprocess.run([*self._as_user(make[0]), *make[1:], "-D", str(self._data)], check=True, capture_output=True)
        self._process = self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """The end of its log."""
        return (self._folder / "log").read_text("utf-8")[-2000:]

    def fresh(self, name: str = "fresh", template: str = "template0") -> str:
        """Makes a database anew, empty or as `template` is; returns its address."""
        self.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url.removesuffix("postgres") + name

    def run(self, *statements: str) -> None:
        """Runs each by itself, in the database `postgres`."""
        commands = [word for statement in statements for word in ("-c", statement)]
        psql = [find_binary("psql") or "psql", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", "parlance"]
        subprocess.run([*psql, "-d", "postgres", *commands], check=True, capture_output=True)

    def encrypt(self, key: bytes, certificate: bytes) -> None:
        """Takes TLS from now on, for clients that want it."""
        for name, text in (("server.key", key), ("server.crt", certificate)):
            file = self._data / name
            file.write_bytes(text)
            file.chmod(0o600)
            if os.getuid() == 0:
                os.chown(file, UNPRIVILEGED, UNPRIVILEGED)
        self.stop()
        self._settings += ("ssl=on",)
        self._process = self._start()

    def stop(self, crash: bool = False) -> None:
        self._process.send_signal(signal.SIGQUIT if crash else signal.SIGINT)
        self._process.wait(START_S)

    def restart(self) -> None:
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        settings = [word for each in ("max_connections=60", "fsync=off", *self._settings) for word in ("-c", each)]
        options = ("-h", "127.0.0.1", "-p", str(self.port), "-k", str(self._folder), *settings)
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [*self._as_user("postgres"), "-D", str(self._data), *options], stdout=log, stderr=log
            )
        ready = [find_binary("pg_isready") or "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        wait_until(lambda: subprocess.run(ready, check=False).returncode == 0, process)
        return process

    def _as_user(self, program: str) -> Sequence[str]:
        path = find_binary(program) or program
        if os.getuid() != 0:
            return [path]
        return ["setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups", path]


class Redis:
    """One Redis server without persistence.

    Attributes:
        url: of its first database.
    """

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self.url = f"redis://127.0.0.1:{self.port}"
        self._process = self._start()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(START_S)

    def restart(self) -> None:
        """Starts it again, empty, on the same port."""
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        options = ("--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--dir", str(self._folder))
        process = subprocess.Popen([find_binary("redis-server") or "redis-server", *options], stdout=subprocess.DEVNULL)
        wait_until(lambda: _accepts(self.port), process)
        return process


class Seaweed:
    """SeaweedFS with an S3 gateway that checks signatures and makes a bucket when something is put into it.

    Attributes:
        url: of the gateway.
        environment: what a client of it is told.
    """

    def __init__(self, folder: Path) -> None:
        ports = {name: free_port() for name in ("s3", "master", "volume", "filer")}
        self.url = f"http://127.0.0.1:{ports['s3']}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "nowhere",
            "AWS_ACCESS_KEY_ID": "parlance",
            "AWS_SECRET_ACCESS_KEY": "not a secret",
        }
        key = {
            "accessKey": self.environment["AWS_ACCESS_KEY_ID"],
            "secretKey": self.environment["AWS_SECRET_ACCESS_KEY"],
        }
        allowed = {"name": "tests", "credentials": [key], "actions": ["Admin", "Read", "Write", "List"]}
        (folder / "s3.json").write_text(json.dumps({"identities": [allowed]}), "utf-8")
        options = ["-s3", f"-s3.config={folder}/s3.json", f"-dir={folder}", "-volume.max=8", "-metricsPort=0"]
        options += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.iam=false", "-s3.port.iceberg=0"]
        for name, port in ports.items():
            options += [f"-{name}.port={port}", f"-{name}.port.grpc={free_port()}"]
        with (folder / "log").open("ab") as log:
            weed = Path(sys.executable).parent / "weed"
            self._process = subprocess.Popen([weed, "-logtostderr=true", "server", *options], stdout=log, stderr=log)
        wait_until(lambda: _accepts(ports["s3"]), self._process)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(START_S)


PACKAGES = {Postgres: ("initdb", "postgresql"), Redis: ("redis-server", "redis-server")}
"""A program of each server that the machine must have, and the package it is in."""


@contextmanager
def run_server(kind: type[S], *settings: str, in_memory: bool = True, **options: Any) -> Iterator[S]:
    """A server for the block. Where it is not installed the test is skipped, and fails in CI."""
    program, package = PACKAGES.get(kind, (sys.executable, ""))
    if find_binary(program) is None:
        reason = f"needs `{program}`: install the package {package}"
        # On a developer's machine a missing server is a gap in the report; in CI it is a fault.
        pytest.skip(reason)
    with temporary_folder(in_memory) as folder:
        server = kind(folder, *settings, **options)
        try:
            yield server
        finally:
            server.stop()


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Polls until `condition` holds. Fails if the process ends or does not start in time."""
    failure = f"{process.args!r} did not start"
    eventually(lambda: process.poll() is not None or condition(), START_S, failure)
    assert process.poll() is None, failure


def _accepts(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def temporary_folder(in_memory: bool = True) -> Iterator[Path]:
    """A folder for the block, by default in memory where the system has such a place."""
    # Not pytest's folder: that one is closed to the user PostgreSQL runs as.
    memory = Path("/dev/shm")
    folder = Path(mkdtemp(prefix="parlance-", dir=memory if in_memory and memory.is_dir() else "/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
