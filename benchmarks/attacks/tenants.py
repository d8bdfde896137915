"""Looks at other organisations, and at shared stores that one could fill: the console, verdicts, pages of usage."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import httpx

from benchmarks.attacks.attack import OTHER_KEY, NotTriedError, Saw, answered, attack
from benchmarks.attacks.bystander import Question, standing_by
from benchmarks.attacks.target import NOBODY, Target, authorized, summary

SPEECH = "/v1/audio/speech"
WATCH_S = 3
"""For which the console is watched beside the requests of another organisation."""
EMBEDDED = 10
"""Requests of the other organisation meanwhile, beside those of a bystander."""
COUNTS = {"used", "waiting", "organisations", "requests_per_minute", "errors_per_minute"}


@attack("states of engines, and no count of calls; without a key not even which engines run", "embedding", OTHER_KEY)
async def activity_of_others(target: Target) -> Saw:
    """The console's events, the health of the server and lists of requests, while another organisation works."""
    seen: list[Any] = []
    opened = asyncio.Event()

    async def watch() -> None:
        headers = authorized(target.key)
        async with target.client.stream("GET", "/v1/console/events", headers=headers, timeout=WATCH_S) as events:
            async for line in events.aiter_lines():
                if line.startswith("data: "):
                    seen.append(json.loads(line.removeprefix("data: ")))
                    opened.set()

    with standing_by(target) as waits:
        watching = asyncio.create_task(watch())
        with suppress(TimeoutError):
            await asyncio.wait_for(opened.wait(), WATCH_S)
        await asyncio.gather(*(_embed(target, target.other_key) for _ in range(EMBEDDED)))
        with suppress(httpx.TimeoutException, TimeoutError):
            async with asyncio.timeout(WATCH_S):
                await watching
        health = (await target.send("GET", "/healthz", key=NOBODY)).json()
    shown = {field for data in seen for engine in data["engines"] for field in engine} & COUNTS
    traffic = [data["organisation"]["requests_per_minute"] for data in seen] or [0]
    # The attacker's own few requests may be counted late; the other organisation's are more than those.
    added, of_others = max(traffic) - traffic[0], EMBEDDED + len(waits.each_s)
    text = (
        f"{len(seen)} events with {', '.join(sorted(shown)) or 'no counts'}, {added} requests more while others sent "
        f"{of_others}; health names {len(health['replicas'])}"
    )
    own = added < EMBEDDED
    return Saw(f"{text}; {waits}", bool(seen) and not shown and not health["replicas"] and own and waits.passed)


@attack("404 for the verdict of another organisation, which stays there; nobody else waits", OTHER_KEY)
async def verdicts_of_others(target: Target) -> Saw:
    """Reads a verdict by its id, and has many made, refused ones too, to push it out."""
    body = {"input": "Good morning.", "language": "en", "verify": "report"}
    spoken = await target.send("POST", SPEECH, key=target.other_key, json=body)
    if spoken.status_code != 200:
        raise NotTriedError("no voice here")
    path = f"{SPEECH}/{spoken.headers['x-request-id']}/verdict"
    read = await target.send("GET", path)
    wrong = body | {"provider": "no such engine"}
    with standing_by(target) as waits:
        tries = (target.send("POST", SPEECH, json=json) for json in [body, wrong] * target.size(30, 400))
        replies = await asyncio.gather(*tries)
    kept = await target.send("GET", path, key=target.other_key)
    passed = read.status_code == 404 and kept.status_code in {200, 202} and waits.passed
    return Saw(f"read: {summary([read])}; {summary(replies)}; then its own: {summary([kept])}; {waits}", passed)


@attack("200 or 429 for each, and nobody else waits")
async def searches_of_the_console(target: Target) -> Saw:
    """Pages of requests of a model that never was: each looks through all that is remembered."""
    return await _many_pages(target, "/v1/console/requests", "model=none&limit=200", target.size(100, 300))


@attack("200 or 429 for each, and nobody else waits for a page of its own")
async def pages_of_usage(target: Target) -> Saw:
    """Every page of a long time, many at once: the database adds lines up for each."""
    return await _many_pages(target, "/v1/me/usage", "since=2020-01-01&limit=1", target.size(50, 300))


async def _many_pages(target: Target, path: str, query: str, count: int) -> Saw:
    """So many pages at once, while somebody else asks for one of its own."""
    with standing_by(target, Question(path=path)) as waits:
        replies = await asyncio.gather(*(target.send("GET", f"{path}?{query}") for _ in range(count)))
    return answered(replies, {200, 429}, waits)


async def _embed(target: Target, key: str) -> httpx.Response:
    body = {"model": target.models["embedding"][0], "input": "a text"}
    return await target.send("POST", "/v1/embeddings", key=key, json=body)
