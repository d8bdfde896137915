"""Two organisations over two ingress replicas: what is somebody else's is answered like what never was.

Each id of one organisation is asked for by another one, beside an id of the same form that does not exist. Every
request has a connection of its own, so that both replicas answer some.
"""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from typing import Any

import httpx

from tests.campaign.graph import Graph
from tests.campaign.record import Outcome, Sizes
from tests.cluster.survival import CHAT, DESIGNS, Estate, bills, find, leave

FOREIGN = "The ids of another organisation are answered like ids that do not exist."
BORROWED = "test_keys_of_other_callers_and_paths_are_others"
HELD_BY = "test_404_ids_of_others_and_unknown_ones_in_the_same_words"
OWNED = "test_nobody_else_takes_or_changes_what_an_organisation_owns"
LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
OWNER, OTHER = "tenant-owner", "tenant-other"

Ask = tuple[str, str, Any]
"""Method, path and body, with ID in place of an id."""


async def outcomes(seed: int, sizes: Sizes, graph: Graph) -> AsyncIterator[Outcome]:
    """Ids of each kind; then what the owner still has."""
    chance = random.Random(f"{seed} tenants")
    owner, other = await asyncio.to_thread(graph.key, OWNER), await asyncio.to_thread(graph.key, OTHER)
    with graph.server.http(owner) as client:
        estate = await asyncio.to_thread(leave, client, graph.state, OWNER, "obedient")
        for name, (ids, asks) in _foreign(estate).items():
            yield await _asked(graph, other, f"{name} of another organisation", asks, ids, sizes.asked, chance)
        yield await _borrowed_key(graph, other)
        still = await asyncio.to_thread(find, client, graph.state, estate)
    lost = Counter(f"LOST: {what}" for what, is_there in still.items() if not is_there)
    promise = "Nobody else takes or changes what it owns."
    yield Outcome("tenants", "what the owner still has", promise, len(still), lost.total(), None, lost, OWNED)


def _foreign(estate: Estate) -> dict[str, tuple[list[str], list[Ask]]]:
    """Ids of each kind, and requests with them."""
    draft, sample = f"{DESIGNS}/ID", "/audio/voices/ID/samples/en.mp3"
    adopt: Ask = ("POST", f"{draft}/adopt", {"slug": "borrowed"})
    hear: Ask = ("POST", "/audio/transcriptions", {"upload_id": "ID", "language": "en"})
    speak: Ask = ("POST", "/audio/speech", {"input": "Mine.", "language": "en", "voice": "ID"})
    verdict, request = "/audio/speech/ID/verdict", "/console/requests/ID"
    return {
        "drafts": ([estate.ready, *estate.orders], [("GET", draft, None), ("DELETE", draft, None), adopt]),
        "tickets": (list(estate.tickets.values()), [hear]),
        "voices": ([estate.voice], [speak, ("GET", sample, None)]),
        "requests": (estate.billed, [("GET", verdict, None), ("GET", request, None)]),
    }


async def _asked(
    graph: Graph, key: str, fault: str, asks: list[Ask], ids: list[str], times: int, chance: random.Random
) -> Outcome:
    seen, differing, count = Counter[str](), 0, 0
    limits = httpx.Limits(max_keepalive_connections=0)
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=f"{graph.url}/v1", headers=headers, timeout=60, limits=limits) as client:
        for ask in asks:
            for id in ids:
                answers = defaultdict[str, set[tuple[int, str]]](set)
                for _ in range(times):
                    missing = id[:-6] + "".join(chance.choices(LETTERS, k=6))
                    for what, name in chance.sample([("foreign", id), ("missing", missing)], 2):
                        reply = await _send(client, ask, name)
                        answers[what].add((reply.status_code, reply.text.replace(name, "ID")))
                        seen[f"{ask[0]} {ask[1]}: {reply.status_code}"] += 1
                        count += 1
                if others := answers["foreign"] ^ answers["missing"]:
                    differing += 1
                    seen[f"LOST: {ask[0]} {ask[1]}: {others}"] += 1
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
    return Outcome("tenants", fault, promise, 1, lost, None, Counter([str(reply.status_code)]), BORROWED)
