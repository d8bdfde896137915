"""Records that the server writes, for tests of what must never be among it."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, select

from state import State
from state.database.tables import metadata


@contextmanager
def everything_logged() -> Iterator[io.StringIO]:
    """Every record of every logger as text, with tracebacks, whatever its level."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield text
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


async def rows(state: State) -> str:
    """Every row of every table."""

    def read(connection: Connection) -> str:
        found = (row for table in metadata.sorted_tables for row in connection.execute(select(table)).all())
        return "\n".join(map(repr, found))

    return await state.database.run(read)
