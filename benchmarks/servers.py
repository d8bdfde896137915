"""Servers that a benchmark starts: on free ports of loopback, in folders of their own, gone when their block ends.

running      any server, in a process group of its own, once it answers
parlance     the whole graph of this or of another checkout, with a customer whom no limit stops
replicas     their processes
printed_by   what a module prints in a process of its own
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

ROOT = Path(__file__).parent.parent
READY_WITHIN_S = 180
STOPPED_WITHIN_S = 60
MOST_MICRO_EUR = 10**15
"""The largest limit that the ledger takes: it is reserved and settled on every request, and never reached."""
NO_END = 10**9
ORGANISATION = "benchmark"
REPLICA = "ray::ServeReplica:parlance:"


@dataclass(frozen=True, slots=True)
class Server:
    """Where to send requests. `key` is empty where none is wanted; `home` is the PARLANCE_HOME of a graph."""

    name: str
    port: int
    key: str = ""
    home: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


def free_port() -> int:
    """A TCP port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def working_folder(prefix: str) -> Iterator[Path]:
    """A folder for the block, under `var/`: where /tmp is memory, a database in it would not wait for its disk."""
    (ROOT / "var").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=ROOT / "var") as folder:
        yield Path(folder)


@contextmanager
def running(
    command: list[str],
    url: str,
    log: Path,
    environment: dict[str, str] | None = None,
    *,
    worst_status: int = 499,
    within_s: float = READY_WITHIN_S,
    folder: Path = ROOT,
) -> Iterator[None]:
    """A server that was started in `folder`, once `url` answers with `worst_status` or less.

    Raises SystemExit with the end of its log if it ends or is not ready within `within_s`.
    """
    with log.open("w") as output:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | (environment or {}),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _await(url, worst_status, within_s, child, log)
        yield
    finally:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)


def printed_by(module: str, *arguments: str, python: str = sys.executable) -> Any:
    """The JSON in the last line that a module prints in a process of its own. Raises CalledProcessError."""
    command = [python, "-m", module, *arguments]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout
    return json.loads(output.splitlines()[-1])


def _await(url: str, worst_status: int, within_s: float, child: subprocess.Popen[bytes], log: Path) -> None:
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s and child.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(url, timeout=5).status_code <= worst_status:
                return
        time.sleep(0.2)
    raise SystemExit(f"{child.args!r} is not ready: {log.read_text()[-2000:]}")


@contextmanager
def parlance(
    folder: Path,
    config: str | Path = "configs/embedded.yaml",
    *,
    checkout: Path = ROOT,
    name: str = "Parlance",
    weights_toml: str = "",
    **environment: str,
) -> Iterator[Server]:
    """The graph of a Serve config as `make serve` runs it, with a home in `folder`; no engine is warm yet.

    `config` is read from `checkout`, and so is every module; the interpreter is this one. `weights_toml` are stanzas of
    weights that are not shipped.
    """
    home = Path(tempfile.mkdtemp(prefix="home-", dir=folder))
    (home / "weights").symlink_to(_weights())
    (home / "weights.toml").write_text(weights_toml)
    environment |= {"PARLANCE_HOME": str(home), "PYTHONPATH": str(checkout)}
    server = Server(name, free_port(), make_customer(environment, checkout), str(home))
    command = [sys.executable, "-m", "launch", str(config), "--port", str(server.port)]
    # HAProxy answers 404 until it has heard of the graph.
    ready = f"{server.url}/healthz"
    with running(command, ready, home / "log", environment, worst_status=200, folder=checkout):
        yield server


def replicas(checkout: Path | None = None) -> dict[int, str]:
    """Deployments of the replicas on this machine, by ids of processes; those of one checkout where it is named."""
    names = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            title = " ".join(process.cmdline())
            if title.startswith(REPLICA) and (checkout is None or process.cwd() == str(checkout)):
                names[process.pid] = title.removeprefix(REPLICA).strip()
    return names


def replica(deployment: str) -> int | None:
    """The process of a replica that a graph of this checkout runs; its title may end with the method that it runs."""
    return next((process for process, name in replicas(ROOT).items() if f"{name}.".startswith(f"{deployment}.")), None)


def make_customer(environment: dict[str, str], checkout: Path = ROOT) -> str:
    """A key of an organisation that is billed and counted like any other, with limits that no benchmark reaches."""
    limits = (f"--requests-per-minute={NO_END}", f"--concurrent-streams={NO_END}")
    key = customer(environment, ORGANISATION, "enterprise", *limits, checkout=checkout)
    state(environment, checkout, "budget", "set", "--org", ORGANISATION, f"--limit-micro-eur={MOST_MICRO_EUR}")
    return key


def customer(environment: dict[str, str], name: str, plan: str, *limits: str, checkout: Path = ROOT) -> str:
    """A key with every scope of a new organisation."""
    state(environment, checkout, "org", "create", name, "--plan", plan)
    if limits:
        state(environment, checkout, "org", "change", name, *limits)
    return state(environment, checkout, "key", "create", "--org", name, "--scopes", "all")


def state(environment: dict[str, str], checkout: Path, *arguments: str) -> str:
    """Returns what `python -m state` of `checkout` prints; its tables may differ. `environment` says which database."""
    command = [sys.executable, "-m", "state", *arguments]
    variables = os.environ | environment
    done = subprocess.run(command, cwd=checkout, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def _weights() -> Path:
    """Where this checkout keeps its weights; they are the same for every graph."""
    folder = Path(os.environ.get("PARLANCE_HOME", ROOT / "var")).resolve() / "weights"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
