"""Facts about the whole database, as texts by name. Replicas revise them one after the other, and none is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import Connection, select, update

from state.database.base import Database, insert_new
from state.database.tables import facts

Revisions = Mapping[str, Callable[[str | None], str]]
"""Functions that make the new text of each fact from the old one, which is None at first."""


async def revise(database: Database, revisions: Revisions) -> dict[str, str]:
    """Replaces the texts of some facts, in one transaction, and returns them. Raises STATE_UNAVAILABLE.

    A power failure may lose the last revision.
    """

    def transaction(connection: Connection) -> dict[str, str]:
        # All replicas lock in the same order, so that none waits for another that waits for it.
        return {name: _revise(connection, name, revisions[name]) for name in sorted(revisions)}

    return await database.run(transaction, durable=False, patient=True)


def _revise(connection: Connection, name: str, revision: Callable[[str | None], str]) -> str:
    is_new = connection.execute(insert_new(connection, facts).values(name=name, value="")).rowcount
    here = facts.c.name == name
    before = None if is_new else connection.execute(select(facts.c.value).where(here).with_for_update()).scalar_one()
    text = revision(before or None)
    connection.execute(update(facts).where(here).values(value=text))
    return text
