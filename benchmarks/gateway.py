"""What the ingress adds to a call: requests per second and latency beside less and beside a peer, in turns in one run.

    python -m benchmarks.gateway --litellm /path/to/peer/bin/python
    python -m benchmarks.gateway --admission                            only the checks, in this process

Everything answers with the same instant engine (`benchmarks.instant`): a bare ASGI app under uvicorn; two bare hops of
Ray Serve behind HAProxy; this project with every check on (key, scope, rate, body, a spend limit that is reserved and
settled in SQLite, one usage line a request); and LiteLLM's proxy, one worker, with a master key and no database, in
front of that ASGI app over HTTP. Clients are a process of their own (`benchmarks.load`). Streams are 50 events without
a pause.

The peer needs an environment of its own:

    python3.11 -m venv peer
    peer/bin/pip install "litellm[proxy]==1.106.2"
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from sqlalchemy import Connection

from benchmarks.instant import MODEL
from benchmarks.load import Figures, Job, cuts_ms, measure
from contract.access import Scope
from state import State, open_state
from state.accounts import api_keys, keys, organisations
from state.accounts.authentication import PEPPER
from state.blobs.store import open_blobs
from state.database.connect import open_database
from state.keyring import open_secrets
from state.rates import Rates
from tests.state.servers import run_postgres

ROOT = Path(__file__).parent.parent
CLIENTS = (1, 16, 64)
PEER_KEY = "sk-benchmark"
READY_WITHIN_S = 180
NO_END = 10**9

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "say " + "word " * 100}]}
STREAM = {"model": MODEL, "messages": [{"role": "user", "content": "stream 50 0"}], "stream": True}


@dataclass(frozen=True, slots=True)
class System:
    """Something that serves POST /chat/completions."""

    name: str
    port: int
    path: str = "/v1/chat/completions"
    key: str = ""

    def job(self, clients: int, stream: bool, seconds: float) -> Job:
        """One case."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return Job(self.port, self.path, headers, json.dumps(STREAM if stream else BODY), clients, seconds)


# --- the systems -----------------------------------------------------------------------------------------------------


@contextmanager
def running(
    command: list[str], url: str, log: Path, environment: dict[str, str] | None = None, worst_status: int = 499
) -> Iterator[None]:
    """A server in a process group of its own, once `url` answers with `worst_status` or less; ends with the block."""
    with log.open("w") as output:
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | (environment or {}),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _await(lambda: httpx.get(url, timeout=5).status_code <= worst_status, child, log)
        yield
    finally:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)


@contextmanager
def direct(folder: Path) -> Iterator[System]:
    """The engine's answer without anything around it."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "benchmarks.instant:answer", "--port", str(port), "--no-access-log"]
    with running([*command, "--lifespan", "off"], f"http://127.0.0.1:{port}/", folder / "direct.log"):
        yield System("bare ASGI app", port)


@contextmanager
def graph(folder: Path) -> Iterator[tuple[System, System]]:
    """Two bare hops, and the whole graph, on one cluster behind one HAProxy."""
    home, port = folder / "home", free_port()
    weights = Path(os.environ.get("PARLANCE_HOME", ROOT / "var")).resolve() / "weights"
    home.mkdir()
    (home / "weights").symlink_to(weights)
    key = asyncio.run(_customer(home))
    command = [sys.executable, "-m", "launch", "benchmarks/instant.yaml", "--port", str(port)]
    environment = {"PARLANCE_HOME": str(home)}
    with running(command, f"http://127.0.0.1:{port}/healthz", folder / "graph.log", environment):
        yield System("two bare hops", port, "/bare/v1/chat/completions"), System("Parlance", port, key=key)


@contextmanager
def litellm(python: Path, upstream: int, folder: Path) -> Iterator[System]:
    """The peer's proxy, one worker."""
    port, config = free_port(), folder / "litellm.yaml"
    parameters = {"model": f"openai/{MODEL}", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
    settings = {
        "model_list": [{"model_name": MODEL, "litellm_params": parameters}],
        "litellm_settings": {"telemetry": False},
        "general_settings": {"master_key": PEER_KEY},
    }
    config.write_text(json.dumps(settings))
    command = [str(python.parent / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    environment = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "DO_NOT_TRACK": "1"}
    url = f"http://127.0.0.1:{port}/health/liveliness"
    with running([*command, "--num_workers", "1"], url, folder / "litellm.log", environment):
        yield System("LiteLLM", port, key=PEER_KEY)


async def _customer(home: Path) -> str:
    """Makes a key whose organisation has a spend limit and a rate that no benchmark reaches."""
    state = await open_state(home)
    try:
        return await make_customer(state)
    finally:
        await state.close()


async def make_customer(state: State) -> str:
    """The key's text."""
    key, pepper, now_s = keys.mint(), state.secrets.derive(PEPPER), int(time.time())

    def store(connection: Connection) -> None:
        org_id = organisations.create(connection, "benchmark", "enterprise", (), now_s)
        agreed = {"requests_per_minute": NO_END, "concurrent_streams": NO_END}
        organisations.change(connection, "benchmark", agreed)
        organisations.set_limit(connection, org_id, None, organisations.MAX_LIMIT_MICRO_EUR)
        api_keys.store(
            connection, key, pepper, org_id=org_id, user_id=None, scopes=frozenset(Scope), label=None, now_s=now_s
        )

    await state.database.run(store)
    return key.text


def free_port() -> int:
    """A TCP port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(answers: Callable[[], bool], child: subprocess.Popen[bytes], log: Path) -> None:
    end_s = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < end_s and child.poll() is None:
        with suppress(httpx.TransportError):
            if answers():
                return
        time.sleep(0.2)
    child.kill()
    raise SystemExit(f"{child.args} is not ready: {log.read_text()[-2000:]}")


# --- the comparison --------------------------------------------------------------------------------------------------

Case = tuple[bool, int]
"""Whether it streams, and the number of clients."""


def compare(systems: list[System], rounds: int, seconds: float) -> dict[tuple[str, Case], list[Figures]]:
    """Every case with every system in turns."""
    figures: dict[tuple[str, Case], list[Figures]] = {}
    for system in systems:
        for stream in (False, True):
            # HAProxy knows a new application a moment after it says that it is ready.
            while failures := measure(system.job(4, stream, 1.0)).failures:
                print(f"warming {system.name}: {failures}", file=sys.stderr)
    for _ in range(rounds):
        for case in [(stream, clients) for stream in (False, True) for clients in CLIENTS]:
            for system in systems:
                figures.setdefault((system.name, case), []).append(measure(system.job(case[1], case[0], seconds)))
    return figures


def table(systems: list[System], figures: dict[tuple[str, Case], list[Figures]]) -> str:
    """Markdown: a block for each case; the added time is to the first system, the ratio to the last one."""
    lines = [
        "| case | system | requests/s | p50/p95/p99 ms | first byte p50/p95 ms | added p50 ms | times the last |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in dict.fromkeys(case for _, case in figures):
        found = [_median(figures[system.name, case]) for system in systems]
        for system, one in zip(systems, found, strict=True):
            whole, first = ("/".join(f"{ms:.1f}" for ms in cuts) for cuts in (one.whole_ms, one.first_ms[:2]))
            added = one.whole_ms[0] - found[0].whole_ms[0]
            ratio = one.requests_per_s / found[-1].requests_per_s
            failed = "".join(f" ({count} times {status})" for status, count in one.failures.items())
            title = f"{'stream' if case[0] else 'unary'}, {case[1]} | {system.name}"
            lines.append(
                f"| {title} | {one.requests_per_s:.0f}{failed} | {whole} | {first} | {added:.1f} | {ratio:.1f} |"
            )
    return "\n".join(lines)


def _median(rounds: list[Figures]) -> Figures:
    """Each figure's median over the rounds; failures are summed up."""

    def cuts(which: str) -> tuple[float, float, float]:
        middle = [statistics.median(column) for column in zip(*(getattr(one, which) for one in rounds), strict=True)]
        return (middle[0], middle[1], middle[2])

    rate = statistics.median(one.requests_per_s for one in rounds)
    failures = sum((Counter(one.failures) for one in rounds), Counter[str]())
    return Figures(rate, cuts("whole_ms"), cuts("first_ms"), dict(failures))


# --- admission alone -------------------------------------------------------------------------------------------------


async def admission(database_url: str, home: Path, requests: int) -> str:
    """A row: key, scope, rate and reserve by one client after the other, and the settling that follows."""
    secrets = open_secrets(home)
    state = State(await open_database(database_url), secrets, Rates(), open_blobs(home))
    try:
        header = f"Bearer {await make_customer(state)}"
        admitting_s, settling_s = [], []
        for index in range(requests):
            started_s = time.perf_counter()
            caller = await state.accounts.authenticate(header)
            verdict = await state.rates.hit(caller)
            caller.require(Scope.CHAT)
            assert verdict.allowed
            hold = await state.ledger.reserve(
                caller, line="chat:x", model="x", estimate_micro_eur=40, request_id=f"req_{index}"
            )
            admitted_s = time.perf_counter()
            await hold.settle(30, 10, "tokens")
            admitting_s.append(admitted_s - started_s)
            settling_s.append(time.perf_counter() - admitted_s)
    finally:
        await state.close()
    cells = (
        "/".join(f"{ms:.2f}" for ms in cuts_ms(seconds[requests // 10 :])) for seconds in (admitting_s, settling_s)
    )
    return f"| {database_url.split(':')[0]} | {' | '.join(cells)} |"


def admission_table(folder: Path, requests: int) -> str:
    """Markdown: both databases. Both wait for their disk."""
    rows = [asyncio.run(admission(f"sqlite:///{folder / 'admission.db'}", folder, requests))]
    with run_postgres(fsync=True) as postgres:
        rows.append(asyncio.run(admission(postgres.url, folder, requests)))
    head = ["| database | key, scope, rate, reserve: p50/p95/p99 ms | settle: p50/p95/p99 ms |", "|---|---|---|"]
    return "\n".join(head + rows)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--litellm", type=Path, metavar="PYTHON", help="interpreter of the peer's environment")
    parser.add_argument("--admission", action="store_true", help="only the checks, in this process")
    parser.add_argument("--requests", type=int, default=2000, help="of --admission")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-", dir=ROOT / "var")))
        if options.admission:
            print(admission_table(folder, options.requests))
            return
        systems = [stack.enter_context(direct(folder)), *stack.enter_context(graph(folder))]
        if options.litellm:
            systems.append(stack.enter_context(litellm(options.litellm, systems[0].port, folder)))
        print(table(systems, compare(systems, options.rounds, options.seconds)))
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
