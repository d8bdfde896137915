"""One `Idempotency-Key` many times at once: work done twice, bills written twice, answers for somebody else."""

from __future__ import annotations

import asyncio
import secrets

from benchmarks.attacks.attack import Saw, attack
from benchmarks.attacks.target import Target, summary


@attack("one bill; the others get the same answer, or 409", "embedding")
async def idempotency_races(target: Target) -> Saw:
    """The same request with the same key, from many connections at once."""
    body = {"model": target.models["embedding"][0], "input": ["a race", secrets.token_hex(8)]}
    await target.send("POST", "/v1/embeddings", json=body)  # the engine is awake
    before = await _spent(target)
    await target.send("POST", "/v1/embeddings", json=body)
    price = await _spent(target) - before
    headers = {"idempotency-key": secrets.token_hex(8)}
    tries = (target.send("POST", "/v1/embeddings", json=body, headers=headers) for _ in range(target.size(20, 60)))
    replies = await asyncio.gather(*tries)
    answers = {reply.content for reply in replies if reply.status_code == 200}
    billed = await _spent(target) - before - price
    passed = billed == price and len(answers) == 1 and {reply.status_code for reply in replies} <= {200, 409}
    return Saw(f"{summary(replies)}; {len(answers)} answers, billed {billed} micro-EUR where one costs {price}", passed)


@attack("422 for another body; somebody else's request is a request of its own", "embedding")
async def borrowed_idempotency_keys(target: Target) -> Saw:
    """A key that was used already: with another body, and by another organisation."""
    body = {"model": target.models["embedding"][0], "input": f"mine {secrets.token_hex(8)}"}
    headers = {"idempotency-key": secrets.token_hex(8)}
    first = await target.send("POST", "/v1/embeddings", json=body, headers=headers)
    other = await target.send("POST", "/v1/embeddings", json=body | {"input": "other"}, headers=headers)
    if not target.other_key:
        return Saw(f"another body: {summary([other])}", other.status_code == 422)
    theirs = await target.send(
        "POST", "/v1/embeddings", key=target.other_key, json=body | {"input": "theirs"}, headers=headers
    )
    passed = other.status_code == 422 and theirs.status_code == 200 and theirs.content != first.content
    return Saw(f"another body: {summary([other])}; another organisation: {summary([theirs])}", passed)


async def _spent(target: Target) -> int:
    """Of the attacker's organisation, once it stays the same: a bill is written after its reply has gone out."""
    before, now = -1, -2
    while before != now:
        await asyncio.sleep(0.3)
        me = (await target.send("GET", "/v1/me")).json()
        before, now = now, int(me["spend"]["organisation"]["spent_micro_eur"])
    return now
