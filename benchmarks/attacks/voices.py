"""Voice design: floods of orders, and drafts of somebody else."""

from __future__ import annotations

import asyncio

from benchmarks.attacks.attack import NotTriedError, Saw, attack
from benchmarks.attacks.bystander import standing_by
from benchmarks.attacks.target import Target, told
from contract.limits import FREE_TEXT_CHARS, PENDING_DRAFTS, SUGGEST_CHARS

DESIGNS = "/v1/audio/voices/designs"
ORDER = {"gender": "f", "age_years": 34, "language": "en"}
DONE = {202, 402, 403, 409, 429, 503}
"""Taken; or no money, no plan, three are being made, too many requests, a cold engine."""


@attack("three drafts of an organisation at a time, then 409; nobody else sees one, nobody else waits")
async def floods_of_voice_design(target: Target) -> Saw:
    """Orders for voices all at once, orders that are too long, and drafts read with another organisation's key."""
    if (await target.send("GET", f"{DESIGNS}")).status_code in {404, 405}:
        raise NotTriedError("no voice design here")
    with standing_by(target) as waits:
        orders = (target.send("POST", DESIGNS, json=ORDER) for _ in range(target.size(10, 40)))
        replies = await asyncio.gather(*orders)
        long = [
            await target.send("POST", DESIGNS, json=ORDER | {"free_text": "x" * (FREE_TEXT_CHARS + 1)}),
            await target.send("POST", f"{DESIGNS}/suggest", json={"text": "x" * (SUGGEST_CHARS + 1)}),
            await target.send("POST", DESIGNS, json=ORDER | {"age_years": 10**30}),
        ]
    if {reply.status_code for reply in replies} == {501}:
        raise NotTriedError("no designer is set up here")
    taken = [reply.json()["id"] for reply in replies if reply.status_code == 202]
    foreign = await _foreign(target, taken)
    for draft in taken:
        await target.send("DELETE", f"{DESIGNS}/{draft}")
    # Drafts may be done while others are ordered: more are taken then, one after the other.
    held = {reply.status_code for reply in replies} <= DONE and {reply.status_code for reply in long} <= {400, 413, 429}
    text = f"{told(replies)}; too long: {told(long)}; seen by somebody else: {foreign}; {waits}"
    is_flooded = len(taken) == len(replies) and len(taken) > PENDING_DRAFTS
    return Saw(text, held and waits.held and not foreign and not is_flooded)


async def _foreign(target: Target, drafts: list[str]) -> int:
    """How many drafts another organisation could read, adopt or discard."""
    if not target.other_key:
        return 0
    replies = [
        await target.send(method, f"{DESIGNS}/{draft}{rest}", key=target.other_key)
        for draft in drafts
        for method, rest in (("GET", ""), ("POST", "/adopt"), ("DELETE", ""))
    ]
    return sum(reply.status_code < 400 for reply in replies)
