"""Whether answers begin when streams that wait were promised: at cold starts, in bursts, beside floods, after a death.

    python -m benchmarks.speed.waits

Every client of the whole graph asks for `queue_status` events. A promise is one such event; what came of it is the time
until the first other event of the same stream. Not counted is a burst before, from which the graph learns durations.

    cold       a few clients come to an engine at zero
    burst      more come at once than there are slots
    flood      so do those of another organisation, again and again, and a client of ours now and then
    death      the replica is killed while a burst waits; who was at work has an error, and is not counted
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks import tables
from benchmarks.servers import Server, parlance, replica, working_folder
from benchmarks.speed.cold_start import await_zero
from benchmarks.speed.fairness import flood_key

IDLE_S = 5
"""Until an engine is at zero."""
WITHIN_S = 120
COLD_CLIENTS = 6
FLOOD_S = 25.0
STATUS = "event: queue_status"
STORY = "Tell me a story about a lighthouse and its keeper."
SENTENCE = "The ferry to the island leaves from the second pier at half past nine. "

Draw = random.Random


@dataclass(frozen=True, slots=True)
class Promise:
    """What one event said, and what came of it, in seconds from the event on. `case` is where."""

    case: str
    eta_s: float
    p90_s: float
    came_s: float


@dataclass(frozen=True, slots=True)
class Kind:
    """An engine, what it is asked, and how many come at once; `body` makes requests of different lengths."""

    deployment: str
    path: str
    body: Callable[[Draw], Mapping[str, Any]]
    clients: int


def _chat(draw: Draw) -> Mapping[str, Any]:
    message = {"role": "user", "content": STORY}
    return {"model": "smollm2-135m-instruct", "messages": [message], "max_tokens": draw.randint(16, 96), "stream": True}


def _speech(draw: Draw) -> Mapping[str, Any]:
    text = SENTENCE * draw.randint(1, 2)
    return {"provider": "supertonic", "input": text, "language": "en", "stream_format": "sse"}


KINDS = {
    "chat": Kind("chat-smollm2-135m-instruct", "/v1/chat/completions", _chat, 40),
    "speech": Kind("speech-supertonic-3", "/v1/audio/speech", _speech, 24),
}


@dataclass
class Clients:
    server: Server
    http: httpx.AsyncClient
    flood: str
    draw: Draw = field(default_factory=lambda: Draw(7))
    promises: list[Promise] = field(default_factory=list)

    async def ask(self, kind: Kind, case: str, key: str) -> None:
        """One stream to its end, and what it was promised."""
        told: list[tuple[float, float, float]] = []
        headers = {"Authorization": f"Bearer {key}", "X-Service-Progress": "1"}
        is_status, began_s = False, 0.0
        body = kind.body(self.draw)
        async with self.http.stream("POST", kind.path, json=body, headers=headers) as reply:
            async for line in reply.aiter_lines():
                if line.startswith("event: "):
                    is_status = line == STATUS
                elif line.startswith("data: ") and is_status:
                    status, is_status = json.loads(line.removeprefix("data: ")), False
                    if status["eta_ms"] is not None:
                        told.append((time.monotonic(), status["eta_ms"] / 1000, status["eta_p90_ms"] / 1000))
                elif line.startswith("data: ") and not began_s and reply.status_code == 200 and '"error"' not in line:
                    began_s = time.monotonic()
        if began_s:
            self.promises += [Promise(case, eta_s, p90_s, began_s - at_s) for at_s, eta_s, p90_s in told]

    async def burst(self, kind: Kind, case: str, count: int = 0, pause_s: float = 0.0) -> None:
        """So many clients of ours, or as many as come at once, one every `pause_s`."""
        async with asyncio.TaskGroup() as group:
            for _ in range(count or kind.clients):
                group.create_task(self.ask(kind, case, self.server.key))
                await asyncio.sleep(pause_s)

    async def cold(self, kind: Kind, case: str) -> None:
        await asyncio.to_thread(await_zero, self.server, kind.deployment)
        await self.burst(kind, case, COLD_CLIENTS, 0.4)

    async def beside_flood(self, kind: Kind, case: str) -> None:
        """As many clients of another organisation as wait at once, for FLOOD_S, and one of ours every two seconds."""
        end_s = time.monotonic() + FLOOD_S

        async def without_pause() -> None:
            while time.monotonic() < end_s:
                await self.ask(kind, case, self.flood)

        async with asyncio.TaskGroup() as group:
            for _ in range(kind.clients):
                group.create_task(without_pause())
            while time.monotonic() < end_s:
                group.create_task(self.ask(kind, case, self.server.key))
                await asyncio.sleep(2)

    async def death(self, kind: Kind, case: str) -> None:
        await self.burst(kind, "", 1)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.burst(kind, case))
            await asyncio.sleep(4)
            async with asyncio.timeout(WITHIN_S):
                while not (process := replica(kind.deployment)):  # noqa: ASYNC110  # it may just be starting again
                    await asyncio.sleep(0.5)
            os.kill(process, signal.SIGKILL)


Case = Callable[[Clients, Kind, str], Awaitable[None]]
CASES: Mapping[str, Case] = {
    "cold": Clients.cold,
    "burst": Clients.burst,
    "flood": Clients.beside_flood,
    "death": Clients.death,
}


async def measure(server: Server, flood: str, rounds: int) -> list[Promise]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=server.url, headers=server.headers, timeout=WITHIN_S * 2, limits=limits
    ) as http:
        clients = Clients(server, http, flood)
        for name, kind in KINDS.items():
            await clients.burst(kind, "")
            for case, run in CASES.items():
                for _ in range(rounds if case in {"cold", "burst"} else 1):
                    await run(clients, kind, f"{name}, {case}")
                print(f"{name}, {case}: {len(clients.promises)} promises", flush=True)
    return [promise for promise in clients.promises if promise.case]


def table(promises: Sequence[Promise]) -> str:
    """Markdown: a row for each case, and one for all.

    An error is how far `eta_ms` was off, as a share of the wait, of waits longer than a second.
    """
    rows = []
    cases: defaultdict[str, list[Promise]] = defaultdict(list)
    for promise in promises:
        cases[promise.case].append(promise)
    for case, some in [*cases.items(), ("all", promises)]:
        wait_s = statistics.median(one.came_s for one in some)
        kept = sum(one.came_s <= one.p90_s for one in some) / len(some)
        errors = [abs(one.came_s - one.eta_s) / one.came_s for one in some if one.came_s > 1]
        error = f"{statistics.median(errors):.0%}" if errors else ""
        rows.append((case, len(some), f"{wait_s:.1f}", f"{kept:.0%}", error))
    return tables.table(" | promises | median wait, s | began before `eta_p90_ms` | median error of `eta_ms`", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="of cold starts and bursts")
    options = parser.parse_args()
    with working_folder("waits-") as folder, parlance(folder, PARLANCE_IDLE_S=str(IDLE_S)) as server:
        promises = asyncio.run(measure(server, flood_key(server), options.rounds))
    tables.show(table(promises))


if __name__ == "__main__":
    main()
