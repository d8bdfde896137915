"""Reloads: clients on connections that stay open, while ingress replicas come and go and an engine starts and ends.

Each change of the ingress makes a new HAProxy, and the old one ends with what it serves.
"""

import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from benchmarks.attacks.target import authorized
from tests.campaign.clients import CLOSED, REPLY_S, WHOLE, Crowd, Seen, call, stream
from tests.campaign.graph import Graph
from tests.campaign.record import Outcome, Sizes
from tests.cluster.conftest import ROOT

CLIENTS = 64
WIDE, NARROW = 4, 2
"""Ingress replicas, in turns."""
STREAM_S = 60
PROMISE = "Ingress replicas come and go without a request or a stream lost."
HELD_BY = "test_redeploy_under_load_loses_no_request_and_no_bill"
LONGEST_PAUSE_S = 0.5
"""Of a client between two requests on its connection."""


class Keeper(Crowd):
    """A client that keeps its one connection."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, key)
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=REPLY_S)
        self.http = httpx.AsyncClient(base_url=url, headers=authorized(key), timeout=REPLY_S, limits=limits)


async def outcomes(seed: int, sizes: Sizes, graph: Graph) -> AsyncIterator[Outcome]:
    """One outcome: what all clients saw over all changes."""
    key = await asyncio.to_thread(graph.key, "reloads")
    clients = [Keeper(graph.url, key) for _ in range(CLIENTS)]
    over, seen = asyncio.Event(), list[Seen]()
    async with _scaler(graph) as scaler:
        tasks = [
            asyncio.create_task(_insist(client, random.Random(f"{seed} {number}"), over, seen))
            for number, client in enumerate(clients)
        ]
        starts = Crowd(graph.url, key)
        starts.begin(["start"])
        began_s = time.monotonic()
        rounds = 0
        while rounds < sizes.reloads or len(seen) < sizes.requests:
            for replicas in (WIDE, NARROW):
                await _done(scaler, b"%d\n" % replicas)
            rounds += 1
        duration_s = time.monotonic() - began_s
        over.set()
        await asyncio.gather(*tasks)
        await starts.end()
    for client in (*clients, starts):
        await client.http.aclose()
    answers = Counter(f"{each.kind}: {each.answer}" for each in [*seen, *starts.seen])
    lost = sum(count for name, count in answers.items() if name.split(": ", 1)[1] not in WHOLE)
    fault = f"ingress {NARROW} -> {WIDE} -> {NARROW}, {rounds} times in {duration_s:.0f} s"
    yield Outcome("reloads", fault, PROMISE, answers.total(), lost, None, answers, HELD_BY)


async def _insist(client: Keeper, chance: random.Random, over: asyncio.Event, seen: list[Seen]) -> None:
    """Requests one after the other; one of sixty is a stream that outlives several changes."""
    while not over.is_set():
        is_long = chance.random() < 1 / 60
        try:
            each = await (stream(client, STREAM_S * 2, 0.5) if is_long else call(client, "say hi"))
        except (httpx.TransportError, OSError) as error:
            each = Seen("stream" if is_long else "call", f"{CLOSED}: {type(error).__name__}")
        seen.append(each)
        await asyncio.sleep(chance.uniform(0, LONGEST_PAUSE_S))


@asynccontextmanager
async def _scaler(graph: Graph) -> AsyncIterator[asyncio.subprocess.Process]:
    """The program that changes the number of ingress replicas, once it has deployed the graph."""
    log = (graph.home / "scaler.log").open("ab")
    command, pipe = (sys.executable, "-m", "tests.campaign.scaler"), asyncio.subprocess.PIPE
    environment = os.environ | graph.server.token
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=log, env=environment
    )
    try:
        await _done(process)
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _done(process: asyncio.subprocess.Process, order: bytes = b"") -> None:
    assert process.stdin
    assert process.stdout
    process.stdin.write(order)
    while line := await process.stdout.readline():
        if line.strip() == b"done":
            return
    raise RuntimeError("the program that scales the ingress has ended; scaler.log says why")
