"""What an attack is, and the list of all.

@attack("400, and nobody else waits")
async def duplicate_keys(target: Target) -> Saw:
    (docstring)   what is tried, in one line
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx

from benchmarks.attacks.target import Target

LIMIT_S = 180
"""Of one attack. Whatever is still under way then, the server holds on to."""


@dataclass(frozen=True, slots=True)
class Saw:
    """What came of it, in a few words, and whether that is allowed."""

    text: str
    held: bool


class NotTriedError(Exception):
    """What the attack needs is not there; the text says what."""


Try = Callable[[Target], Awaitable[Saw]]


@dataclass(frozen=True, slots=True)
class Attack:
    """One of the list.

    Attributes:
        name: as on the command line.
        tries: what is tried.
        allowed: what the server may answer.
        is_long: whether it is left out of the short form: it takes about a minute at least, or leaves an organisation
            without something for an hour.
    """

    name: str
    tries: str
    allowed: str
    attempt: Try
    is_long: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """An attack and its end. `held` is None where it was not tried."""

    attack: Attack
    saw: str
    held: bool | None


ATTACKS: dict[str, Attack] = {}
"""By name, filled by `attack`."""


def attack(allowed: str, *, is_long: bool = False) -> Callable[[Try], Try]:
    """Puts a function on the list, under its name, with the first line of its docstring."""

    def listed(attempt: Try) -> Try:
        name = attempt.__name__.replace("_", "-")
        tries = (attempt.__doc__ or "").strip().splitlines()[0].rstrip(".")
        ATTACKS[name] = Attack(name, tries, allowed, attempt, is_long)
        return attempt

    return listed


async def judge(one: Attack, target: Target) -> Verdict:
    """Runs one attack. A server that stays silent, or breaks, has not held."""
    try:
        await target.rested()
        async with asyncio.timeout(LIMIT_S):
            saw = await one.attempt(target)
    except NotTriedError as reason:
        return Verdict(one, f"not tried: {reason}", None)
    except TimeoutError:
        return Verdict(one, f"no end after {LIMIT_S} s", held=False)
    except (httpx.HTTPError, OSError) as error:
        return Verdict(one, f"the connection broke: {type(error).__name__}", held=False)
    return Verdict(one, saw.text, saw.held)
