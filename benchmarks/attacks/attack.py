"""What an attack is, and the list of all.

@attack("400, and nobody else waits")
async def duplicate_keys(target: Target) -> Saw:
    (docstring)   what is tried, in one line
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import httpx

from benchmarks.attacks.bystander import Waits
from benchmarks.attacks.target import Target, summary

LIMIT_S = 180
"""Of one attack. Whatever is still under way then, the server holds on to."""


@dataclass(frozen=True, slots=True)
class Saw:
    """What came of it, in a few words, and whether that is allowed."""

    text: str
    passed: bool


def answered(replies: Sequence[httpx.Response], allowed: Collection[int], waits: Waits, note: str = "") -> Saw:
    """All replies, which pass if their statuses are `allowed` and nobody else was harmed."""
    passed = waits.passed and {reply.status_code for reply in replies} <= set(allowed)
    return Saw(f"{summary(replies)}; {note}{waits}", passed)


def each_answered(replies: Mapping[str, httpx.Response], allowed: Collection[int], waits: Waits | None = None) -> Saw:
    """The same of named tries, of which those with another status are listed."""
    wrong = [f"{name} got {reply.status_code}" for name, reply in replies.items() if reply.status_code not in allowed]
    text = "; ".join([summary(replies.values()), *([str(waits)] if waits else []), *wrong])
    return Saw(text, not wrong and (waits is None or waits.passed))


class NotTriedError(Exception):
    """What the attack needs is not there; the text says what."""


OTHER_KEY = "other key"
NEEDS = {
    "chat": "no chat model here",
    "embedding": "no embedder here",
    "stt": "no transcriber here",
    OTHER_KEY: "wants a key of another organisation",
}
"""Needs of attacks, kinds of models among them, and the answer where one is missing."""


Try = Callable[[Target], Awaitable[Saw]]


@dataclass(frozen=True, slots=True)
class Attack:
    """One of the list.

    Attributes:
        name: as on the command line.
        tries: what is tried.
        allowed: what the server may answer.
        needs: of `NEEDS`.
        is_long: whether it is left out of the short form: it takes about a minute at least, or leaves an organisation
            without something for an hour.
    """

    name: str
    tries: str
    allowed: str
    attempt: Try
    needs: tuple[str, ...]
    is_long: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """An attack and its end. `passed` is None where it was not tried."""

    attack: Attack
    saw: str
    passed: bool | None


ATTACKS: dict[str, Attack] = {}
"""By name, filled by `attack`."""


def attack(allowed: str, *needs: str, is_long: bool = False) -> Callable[[Try], Try]:
    """Puts a function on the list, under its name, with the first line of its docstring."""

    def listed(attempt: Try) -> Try:
        name = attempt.__name__.replace("_", "-")
        tries = (attempt.__doc__ or "").strip().splitlines()[0].rstrip(".")
        ATTACKS[name] = Attack(name, tries, allowed, attempt, needs, is_long)
        return attempt

    return listed


async def judge(case: Attack, target: Target) -> Verdict:
    """Runs one attack. A server that stays silent, or breaks, has not held."""
    try:
        for need in case.needs:
            if not (target.other_key if need == OTHER_KEY else target.models.get(need)):
                raise NotTriedError(NEEDS[need])
        await target.rested()
        async with asyncio.timeout(LIMIT_S):
            saw = await case.attempt(target)
    except NotTriedError as reason:
        return Verdict(case, f"not tried: {reason}", None)
    except TimeoutError:
        return Verdict(case, f"no end after {LIMIT_S} s", passed=False)
    except (httpx.HTTPError, OSError) as error:
        return Verdict(case, f"the connection broke: {type(error).__name__}", passed=False)
    return Verdict(case, saw.text, saw.passed)
