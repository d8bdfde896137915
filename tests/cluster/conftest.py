"""One server for the whole run, started as `make serve` starts it, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest

from tests.waiting import eventually

ROOT = Path(__file__).parent.parent.parent
MEMORY = 10 * 2**30
"""In bytes, that engines may reserve on the node."""
START_S = 240
STOP_S = 60


OPEN: list[openai.OpenAI] = []
"""Clients of the test that runs. Python would warn of their sockets whenever it collects them, in any other test."""


@dataclass(frozen=True)
class Server:
    """A running graph. `key` has every scope; `metrics` is the address where Prometheus scrapes."""

    url: str
    home: Path
    key: str
    process: subprocess.Popen[bytes]
    metrics: str

    @property
    def pid(self) -> int:
        """Of the process that started it."""
        return self.process.pid

    def http(self, key: str | None = None) -> httpx.Client:
        """A client that waits for cold engines."""
        headers = {"authorization": f"Bearer {key or self.key}"}
        return httpx.Client(base_url=f"{self.url}/v1", headers=headers, timeout=120)

    def openai(self) -> openai.OpenAI:
        """The official client, without retries of its own, until the end of the test."""
        OPEN.append(client := openai.OpenAI(api_key=self.key, base_url=f"{self.url}/v1", max_retries=0))
        return client

    def async_openai(self) -> openai.AsyncOpenAI:
        """The same, asynchronous."""
        return openai.AsyncOpenAI(api_key=self.key, base_url=f"{self.url}/v1", max_retries=0)

    def chat(self, model: str, text: str, **fields: Any) -> httpx.Response:
        """One chat completion."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
        with self.http() as client:
            return client.post("/chat/completions", json=body)

    def replicas(self, deployment: str) -> int:
        """Running replicas of an engine, as the ingress sees them."""
        reply = httpx.get(f"{self.url}/healthz", headers={"authorization": f"Bearer {self.key}"})
        return int(reply.json()["replicas"][deployment])

    @property
    def token(self) -> dict[str, str]:
        """The environment of a process that joins this Ray: another one may run on the machine."""
        (address, *_) = re.findall(r"--gcs-address=(\S+)", " ".join(self.family().values()))
        token = str(self.home / "ray_token")
        return {"RAY_ADDRESS": address, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token}

    @property
    def logs(self) -> Path:
        """Serve's logs of this run."""
        return self.home / "ray/session_latest/logs/serve"

    def state(self, *arguments: str) -> str:
        """Runs `python -m state` beside the server."""
        return run_state(os.environ | {"PARLANCE_HOME": str(self.home)}, *arguments)

    def family(self) -> dict[psutil.Process, str]:
        """Command lines of the processes of this server and of what they have started, less those that end meanwhile.

        Forks are no descendants of it, but know its home.
        """
        commands: dict[psutil.Process, str] = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("PARLANCE_HOME") == str(self.home):
                    for each in (process, *process.children(recursive=True)):
                        with suppress(psutil.Error):
                            commands[each] = " ".join(each.cmdline())
        return commands

    def replica_processes(self, deployment: str) -> list[psutil.Process]:
        """Processes of the replicas of an engine, started by Serve or the fork server."""
        title = f"ray::ServeReplica:parlance:{deployment}"
        return [process for process, command in self.family().items() if command.startswith(title)]


@pytest.fixture(autouse=True)
def close_clients() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("home")
    weights = Path(os.environ.get("PARLANCE_HOME", ROOT / "var")) / "weights"
    weights.mkdir(parents=True, exist_ok=True)
    (home / "weights").symlink_to(weights.resolve())
    memory = {"RAY_OVERRIDE_RESOURCES": json.dumps({"memory": MEMORY})}
    running = launched("tests/cluster/graph.yaml", home, free_ports(2), memory)
    process = running.process
    try:
        yield running
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_S) == 0, (home / "serve.log").read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def launched(config: str, home: Path, ports: list[int], environment: dict[str, str]) -> Server:
    """The graph of a Serve config file, once it answers; `ports` are those of HTTP and of metrics."""
    # An operator's own PYTHONPATH is added to and does not replace what workers need.
    environment = os.environ | environment | {"PARLANCE_HOME": str(home), "PYTHONPATH": str(ROOT)}
    port, metrics_port = map(str, ports)
    command = [sys.executable, "-m", "launch", config, "--port", port, "--metrics-port", metrics_port]
    with (home / "serve.log").open("a") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: _answers(url, process), START_S, "the server did not start")
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        error.add_note((home / "serve.log").read_text()[-3000:])
        raise
    return Server(url, home, (home / "demo.key").read_text().strip(), process, f"127.0.0.1:{metrics_port}")


def run_state(environment: dict[str, str], *arguments: str) -> str:
    """Output of `python -m state`."""
    command = [sys.executable, "-m", "state", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        pytest.fail("the server ended while it started")
    try:
        return httpx.get(f"{url}/healthz", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
