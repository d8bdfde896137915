"""Engines that one client keeps for itself, or makes start for nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from benchmarks.attacks.attack import OTHER_KEY, NotTriedError, Saw, answered, attack
from benchmarks.attacks.bystander import short_chat, standing_by
from benchmarks.attacks.target import Target, summary

FIRST_ANSWER_S = 120
WORDS = "Tell a long story about a river, a mill and a miller."


@attack("200, 429 or 503 with `Retry-After`, and nobody else waits")
async def herd_at_a_sleeping_engine(target: Target) -> Saw:
    """Requests by the hundred for an engine that sleeps, and that all of them wait for."""
    asleep = [name for name, running in (await target.replicas()).items() if not running]
    chosen = [request for name, request in _requests(target).items() if name in asleep]
    if not chosen:
        raise NotTriedError("no engine sleeps at the moment")
    path, body = chosen[0]
    with standing_by(target) as waits:
        tries = (target.send("POST", path, json=body) for _ in range(target.size(60, 250)))
        replies = await asyncio.gather(*tries)
    saw = answered(replies, {200, 429, 503}, waits)
    refused = [reply for reply in replies if reply.status_code in {429, 503}]
    return Saw(saw.text, saw.passed and all("retry-after" in reply.headers for reply in refused))


@attack("no engine starts; those that are there are played, the others are 503; nobody else waits")
async def samples_for_strangers(target: Target) -> Saw:
    """Every sample of every voice, without a key, from many addresses."""
    listed = (await target.send("GET", "/v1/audio/voices")).json()["data"]
    paths = [path for voice in listed for path in voice.get("samples", {}).values()]
    before = await target.replicas()
    replies = []
    with standing_by(target) as waits:
        for at in range(0, min(len(paths), target.size(60, 400)), 20):
            async with target.stranger() as stranger:
                replies += await asyncio.gather(*(stranger.get(path) for path in paths[at : at + 20]))
    after = await target.replicas()
    started = [name for name, running in after.items() if running and not before[name]]
    saw = answered(replies, {200, 404, 429, 503}, waits, f"started {', '.join(started) or 'none'}; ")
    return Saw(saw.text, saw.passed and not started)


@attack(
    "429 `rate_limit_exceeded` or `busy` beyond its share; short answers of somebody else come as fast as ever",
    "chat",
    OTHER_KEY,
)
async def one_key_that_starves_others(target: Target) -> Saw:
    """Eighty connections of one key that ask for long answers, again and again."""
    replies, first = [], asyncio.Event()

    async def insist() -> None:
        while True:
            reply = await target.chat(WORDS, max_tokens=64)
            replies.append(reply)
            first.set()
            await asyncio.sleep(0 if reply.status_code == 200 else 0.5)

    with standing_by(target, short_chat(target)) as waits:
        insisting = asyncio.gather(*(insist() for _ in range(80)))
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(insisting), target.size(5, 20))
        # On a slow machine the first answers take a while; the last ones are given up.
        with suppress(TimeoutError):
            await asyncio.wait_for(first.wait(), FIRST_ANSWER_S)
        insisting.cancel()
        with suppress(asyncio.CancelledError):
            await insisting
    passed = waits.passed and bool(replies) and {reply.status_code for reply in replies} <= {200, 429}
    return Saw(f"{summary(replies) or 'no answer'}; {waits}", passed)


def _requests(target: Target) -> dict[str, tuple[str, dict[str, object]]]:
    """A small request for each engine that may sleep, by the name that `/healthz` gives it."""
    text: dict[str, tuple[str, str, dict[str, object]]] = {
        "embedding": ("embeddings", "/v1/embeddings", {"input": "a herd"}),
        "rerank": ("rerank", "/v1/rerank", {"query": "a herd", "documents": ["sheep"]}),
        "tts": ("speech", "/v1/audio/speech", {"input": "A herd.", "language": "en"}),
        "chat": ("chat", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}),
    }
    return {
        f"{noun}-{model}": (path, body | {"model": model})
        for kind, (noun, path, body) in text.items()
        for model in target.models.get(kind, [])
    }
