"""Two organisations over two ingress replicas: what is somebody else's is answered like what never was.

Each id of one organisation is asked for by another one, beside an id of the same form that does not exist. Every
request has a connection of its own, so that both replicas answer some. Times are shown, and not judged.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from typing import Any

import httpx

from tests.campaign.graph import Graph
from tests.campaign.record import Outcome
from tests.cluster.survival import CHAT, DESIGNS, Estate, bills, find, leave

FOREIGN = "The ids of another organisation are answered like ids that do not exist."
HELD_BY = "test_404_ids_of_others_and_unknown_ones_in_the_same_words"
LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
OWNER, OTHER = "tenant-owner", "tenant-other"

Ask = tuple[str, str, Any]
"""Method, path and body, with ID in place of an id."""

OF_DRAFTS: tuple[Ask, ...] = (
    ("GET", f"{DESIGNS}/ID", None),
    ("DELETE", f"{DESIGNS}/ID", None),
    ("POST", f"{DESIGNS}/ID/adopt", {"slug": "borrowed"}),
)
OF_TICKETS: tuple[Ask, ...] = (("POST", "/audio/transcriptions", {"upload_id": "ID", "language": "en"}),)
OF_VOICES: tuple[Ask, ...] = (
    ("POST", "/audio/speech", {"input": "Mine.", "language": "en", "voice": "ID"}),
    ("GET", "/audio/voices/ID/samples/en.mp3", None),
)
OF_REQUESTS: tuple[Ask, ...] = (
    ("GET", "/audio/speech/ID/verdict", None),
    ("GET", "/console/requests/ID", None),
)


async def outcomes(seed: int, is_short: bool, graph: Graph) -> AsyncIterator[Outcome]:
    """Ids of each kind; then what the owner still has."""
    chance, times = random.Random(f"{seed} tenants"), 4 if is_short else 20
    owner, other = await asyncio.to_thread(graph.key, OWNER), await asyncio.to_thread(graph.key, OTHER)
    with graph.server.http(owner) as client:
        estate = await asyncio.to_thread(leave, client, graph.state, OWNER, "obedient")
        for name, asks, ids in _ids(estate):
            yield await _asked(graph, other, f"{name} of another organisation", asks, ids, times, chance)
        yield await _borrowed_key(graph, other)
        still = await asyncio.to_thread(find, client, graph.state, estate)
    lost = Counter(f"LOST: {what}" for what, is_there in still.items() if not is_there)
    promise = "Nobody else takes or changes what it owns."
    yield Outcome("tenants", "what the owner still has", promise, len(still), lost.total(), None, lost)


def _ids(estate: Estate) -> list[tuple[str, tuple[Ask, ...], list[str]]]:
    return [
        ("drafts", OF_DRAFTS, [estate.ready, *estate.orders]),
        ("tickets", OF_TICKETS, list(estate.tickets.values())),
        ("voices", OF_VOICES, [estate.voice]),
        ("requests", OF_REQUESTS, estate.billed),
    ]


async def _asked(
    graph: Graph, key: str, fault: str, asks: tuple[Ask, ...], ids: list[str], times: int, chance: random.Random
) -> Outcome:
    seen, took_s, differing, count = Counter[str](), defaultdict[str, list[float]](list), 0, 0
    limits = httpx.Limits(max_keepalive_connections=0)
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=f"{graph.url}/v1", headers=headers, timeout=60, limits=limits) as client:
        for ask in asks:
            for id in ids:
                answers = defaultdict[str, set[tuple[int, str]]](set)
                for _ in range(times):
                    missing = id[:-6] + "".join(chance.choices(LETTERS, k=6))
                    for what, name in chance.sample([("foreign", id), ("missing", missing)], 2):
                        began_s = time.perf_counter()
                        reply = await _send(client, ask, name)
                        took_s[what].append(time.perf_counter() - began_s)
                        answers[what].add((reply.status_code, reply.text.replace(name, "ID")))
                        seen[f"{ask[0]} {ask[1]}: {reply.status_code}"] += 1
                        count += 1
                if others := answers["foreign"] ^ answers["missing"]:
                    differing += 1
                    seen[f"LOST: {ask[0]} {ask[1]}: {others}"] += 1
    middle_ms = {what: 1000 * statistics.median(each) for what, each in took_s.items()}
    seen[", ".join(f"{what} {ms:.1f} ms" for what, ms in sorted(middle_ms.items()))] = 1
    return Outcome("tenants", fault, FOREIGN, count, differing, None, seen, HELD_BY)


async def _send(client: httpx.AsyncClient, ask: Ask, name: str) -> httpx.Response:
    method, path, body = ask
    if body is not None:
        body = {field: name if value == "ID" else value for field, value in body.items()}
    return await client.request(method, path.replace("ID", name), json=body)


async def _borrowed_key(graph: Graph, key: str) -> Outcome:
    """The `Idempotency-Key` of somebody else, with the same body, is no way to their reply."""
    before = await asyncio.to_thread(bills, graph.state, OTHER)
    headers = {"authorization": f"Bearer {key}", "idempotency-key": "the-last-will"}
    async with httpx.AsyncClient(base_url=f"{graph.url}/v1", headers=headers, timeout=60) as client:
        reply = await client.post("/chat/completions", json={"model": "obedient", **CHAT})
    after = await asyncio.to_thread(bills, graph.state, OTHER)
    lost = int(reply.status_code != 200 or len(after) != len(before) + 1)
    fault, promise = "an `Idempotency-Key` of another organisation", "It leads to a new request, not to a kept reply."
    return Outcome("tenants", fault, promise, 1, lost, None, Counter([str(reply.status_code)]))
