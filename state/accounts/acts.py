"""Audit log of operators' commands: a row for each act, written in the transaction of the act itself.

An act that fails leaves nothing but its row, which says why. No row holds a key, or anything that could be a secret.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
from typing import Any

from sqlalchemy import Connection, insert, select

from state.billing.usage import iso
from state.database.base import NOW_MS
from state.database.tables import acts
from state.keys import KEY_PATTERN

MAX_CHARS = 1_000

_SECRET = re.compile(r"[0-9A-Za-z]{32,}", re.ASCII)
"""Pattern of what could be a secret, or a part of a mistyped key: no word of a command is that long."""

_RECORD = insert(acts).values(at_ms=NOW_MS)


COLUMNS = ("at", "os_user", "host", "act", "result")
"""Columns of an act, in the order of every format: when (ISO 8601, UTC), who, where, the words, the outcome."""


def record(connection: Connection, act: str, result: str) -> None:
    """Adds a row of now, of this host and of the user that this process runs as."""
    row = {"os_user": _os_user(), "host": socket.gethostname(), "act": act, "result": result}
    connection.execute(_RECORD, {name: _without_secrets(text) for name, text in row.items()})


def page(
    connection: Connection, since_ms: int | None, count: int, after_id: int
) -> tuple[list[dict[str, Any]], int | None]:
    """Up to `count` acts that come after a row, oldest first, and the last of them; None: there are no more."""
    query = select(acts).where(acts.c.id > after_id).order_by(acts.c.id).limit(count)
    if since_ms is not None:
        query = query.where(acts.c.at_ms >= since_ms)
    page = [row._asdict() | {"at": iso(row.at_ms)} for row in connection.execute(query)]
    return page, page[-1]["id"] if len(page) == count else None


def _without_secrets(text: str) -> str:
    """`text` as both databases take it, with the public part of each key, and no secret."""
    cut = _SECRET.sub("...", KEY_PATTERN.sub(r"\1_...", text[: 4 * MAX_CHARS]))
    return cut[:MAX_CHARS].replace("\0", "?").encode("utf-8", "replace").decode()


def _os_user() -> str:
    """Not by the environment, which anybody may set."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # containers run as numbers without a name
        return f"uid {os.getuid()}"
