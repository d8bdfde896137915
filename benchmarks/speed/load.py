"""A closed loop of HTTP clients, in a process of its own so that it takes its time from nobody's event loop.

    python -m benchmarks.speed.load < job.json > figures.json

Made of asyncio protocols, uvloop and httptools, because client libraries cost more than the servers under test: on one
core it sends some ten thousand requests a second. A job is the fields of `Job`, the answer those of `Figures`.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import cast

import httptools
import uvloop


@dataclass(frozen=True, slots=True)
class Job:
    """What to send, and how.

    Attributes:
        port: on loopback.
        headers: besides Host, Content-Type and Content-Length.
        clients: connections, each with one request under way.
        seconds: of measuring; as many requests as there are clients come before.
        floods: nothing comes before, and what is under way at the end is given up.
    """

    port: int
    path: str
    headers: dict[str, str]
    body: str
    clients: int
    seconds: float
    floods: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """Milliseconds from the request to the first byte of the body (`first`) and to its end (`whole`)."""

    requests_per_s: float
    whole_ms: tuple[float, float, float]
    first_ms: tuple[float, float, float]
    failures: dict[str, int]
    """By status."""


@dataclass
class Client(asyncio.Protocol):
    """One connection. Sends its next request when it has its answer."""

    port: int
    request: bytes
    until_s: float = 0.0
    whole_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    _sent_at_s: float = 0.0
    _first_at_s: float = 0.0

    def __post_init__(self) -> None:
        self._done = asyncio.get_running_loop().create_future()
        self._done.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No test of its type: uvloop's transports are not registered as asyncio's.
        self._transport = cast(asyncio.WriteTransport, transport)
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        # HAProxy closes what it kept alive when it reads its configuration anew.
        if not self._done.done():
            self._again = asyncio.get_running_loop().create_task(self._reconnect())

    def on_body(self, _: bytes) -> None:
        if self._first_at_s == 0.0:
            self._first_at_s = time.perf_counter()

    def on_message_complete(self) -> None:
        now_s = time.perf_counter()
        if self._parser.get_status_code() == 200:
            self.whole_s.append(now_s - self._sent_at_s)
            self.first_s.append(self._first_at_s - self._sent_at_s)
        else:
            self.failures[str(self._parser.get_status_code())] += 1
        self._parser = httptools.HttpResponseParser(self)
        if now_s < self.until_s:
            self._send()
        else:
            self._done.set_result(None)

    async def connect(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self.port)

    async def run(self, until_s: float) -> None:
        """Sends at least one request, and no more after `until_s`."""
        self.whole_s, self.first_s, self.failures, self.until_s = [], [], Counter(), until_s
        self._done = asyncio.get_running_loop().create_future()
        if self._transport.is_closing():  # it was closed while nothing was under way
            await self._reconnect()
        else:
            self._send()
        await self._done

    def close(self) -> None:
        """Ends the connection, and gives up what is under way."""
        if not self._done.done():
            self._done.set_result(None)
        self._transport.close()

    async def _reconnect(self) -> None:
        try:
            await self.connect()
            self._send()
        except OSError:
            # One figure of a table must not end all others; the table shows what failed.
            self.failures["refused"] += 1
            self._done.set_result(None)

    def _send(self) -> None:
        self._first_at_s = 0.0
        self._sent_at_s = time.perf_counter()
        self._transport.write(self.request)


def post(path: str, headers: dict[str, str], body: str) -> bytes:
    """A request as it goes over the wire."""
    head = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(body.encode()))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in (head | headers).items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n{body}".encode()


async def drive(job: Job) -> Figures:
    """Runs the clients of a job in this process."""
    request = post(job.path, job.headers, job.body)
    clients = [Client(job.port, request) for _ in range(job.clients)]
    await asyncio.gather(*(client.connect() for client in clients))
    if not job.floods:
        await asyncio.gather(*(client.run(0.0) for client in clients))
    started_s = time.perf_counter()
    runs = [asyncio.ensure_future(client.run(started_s + job.seconds)) for client in clients]
    await asyncio.wait(runs, timeout=job.seconds if job.floods else None)
    elapsed_s = time.perf_counter() - started_s
    for client in clients:
        client.close()
    await asyncio.gather(*runs)
    whole = [seconds for client in clients for seconds in client.whole_s]
    first = [seconds for client in clients for seconds in client.first_s]
    failures = dict(sum((client.failures for client in clients), Counter[str]()))
    return Figures(len(whole) / elapsed_s, cuts_ms(whole), cuts_ms(first), failures)


async def closed_loop(call: Callable[[], Awaitable[object]], clients: int, seconds: float) -> tuple[list[float], float]:
    """Seconds of each call, and of all: each client in this process begins the next one when the last one is done."""
    took_s: list[float] = []
    began_s = time.perf_counter()

    async def client() -> None:
        while (started_s := time.perf_counter()) < began_s + seconds:
            await call()
            took_s.append(time.perf_counter() - started_s)

    await asyncio.gather(*(client() for _ in range(clients)))
    return took_s, time.perf_counter() - began_s


def cuts_ms(seconds: list[float]) -> tuple[float, float, float]:
    if len(seconds) < 2:
        return (0.0, 0.0, 0.0)
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return (cuts[49] * 1000, cuts[94] * 1000, cuts[98] * 1000)


def measure(job: Job) -> Figures:
    command = [sys.executable, "-m", "benchmarks.speed.load"]
    done = subprocess.run(command, input=json.dumps(asdict(job)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the load on port {job.port} failed: {done.stderr[-500:]}")
    return Figures(**json.loads(done.stdout))


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(drive(Job(**json.load(sys.stdin)))))))
