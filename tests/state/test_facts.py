"""Facts that several processes revise at one time: none is lost, on either database."""

from __future__ import annotations

import asyncio

from state.database.base import Database, connect
from state.facts import revise


def one_more(text: str | None) -> str:
    return str(int(text or 0) + 1)


async def test_revisions_of_many_at_once_are_all_there(database: Database, database_url: str) -> None:
    others = [connect(database_url) for _ in range(3)]
    await asyncio.gather(*(revise(one, {"b": one_more, "a": one_more}) for one in [database, *others] * 5))
    assert await revise(database, {"a": one_more}) == {"a": "21"}
    assert await revise(database, {"b": one_more}) == {"b": "21"}
    for one in others:
        await one.close()


async def test_a_fact_that_is_not_there_is_none(database: Database) -> None:
    seen: list[str | None] = []

    def see(text: str | None) -> str:
        seen.append(text)
        return "x"

    await revise(database, {"new": see})
    await revise(database, {"new": see})
    assert seen == [None, "x"]
