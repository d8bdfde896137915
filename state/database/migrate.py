"""Migrates the schema, in the transaction of the caller. The revisions are in `migrations/`, run by Alembic.

upgrade_schema    to a revision, forwards or backwards: `python -m state migrate`, the start of a server that is alone
require           refuses a schema that this code cannot work with: every other start

The newest step of a schema says in `compatible_since` which is the oldest code that can work with it, and that stays in
the database: code that does not know the step itself can still read it there. So a server can go back by one version
over a schema that has only grown, without touching it.
"""

from __future__ import annotations

import logging
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, delete, insert, inspect, select, text

from state.database.tables import facts

log = logging.getLogger(f"parlance.{__name__}")

STEPS = Path(__file__).parent / "migrations"

LAST_OF_DEVELOPMENT = "86eabedc"
"""The commit that can migrate databases of every version before 0.3.0."""

COMPATIBLE_SINCE = "compatible_since"
"""Name of that fact, and of the attribute of a step."""

# Replicas that start together must not migrate together; on SQLite, BEGIN IMMEDIATE sees to that. A step that waits
# for a table lets nobody else have it: it gives up before clients notice.
_POSTGRES_LOCK = (
    text("SET LOCAL lock_timeout = '60s'"),
    text("SELECT pg_advisory_xact_lock(7311002)"),
    text("SET LOCAL lock_timeout = '3s'"),
)


def upgrade_schema(connection: Connection, revision: str = "head", steps: Path = STEPS) -> str:
    """Migrates to `revision` and returns it. `head` leaves a newer schema that this code can use as it is.

    Raises ValueError for an unknown revision, and for a newer schema that this code cannot use.
    """
    if connection.dialect.name == "postgresql":
        for statement in _POSTGRES_LOCK:
            connection.execute(statement)
    config = _config(connection, steps)
    script = ScriptDirectory.from_config(config)
    revisions = _revisions(script)
    if revision not in (*revisions, "head", "base"):
        raise ValueError(f"there is no revision `{revision}`; choose from base, {', '.join(revisions)} and head")
    current = _revision(connection)
    if current is not None and current not in revisions:
        _require_compatible(connection, current, revisions)
        return current
    target = revisions[-1] if revision == "head" else revision
    order = ("base", *revisions)
    if order.index(target) >= order.index(current or "base"):
        command.upgrade(config, target)
    else:
        command.downgrade(config, target)
    _note_compatible(connection, script, target)
    return target


def require(connection: Connection, steps: Path = STEPS) -> None:
    """Raises ValueError, which says what to do, unless this code can work with the schema."""
    revisions = _revisions(ScriptDirectory.from_config(_config(connection, steps)))
    current = _revision(connection)
    if current == revisions[-1]:
        return
    if current is None or current in revisions:
        raise ValueError(
            f"the schema of the database is {f'at {current}' if current else 'missing'} and this version needs "
            f"{revisions[-1]}; run `python -m state migrate` first, once"
        )
    _require_compatible(connection, current, revisions)


def _config(connection: Connection, steps: Path) -> Config:
    config = Config()
    config.set_main_option("script_location", str(steps))
    config.attributes["connection"] = connection
    return config


def _revisions(script: ScriptDirectory) -> tuple[str, ...]:
    """Revisions of this code, oldest first."""
    return tuple(step.revision for step in script.walk_revisions())[::-1]


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _require_compatible(connection: Connection, current: str, revisions: tuple[str, ...]) -> None:
    if current < revisions[0]:
        raise ValueError(
            f"the schema of the database is at {current}, of a development version before 0.3.0; "
            f"migrate it to {revisions[0]} with commit {LAST_OF_DEVELOPMENT} first, as docs/operating.md says"
        )
    has_facts = inspect(connection).has_table(facts.name)
    since = connection.execute(_SINCE).scalar_one_or_none() if has_facts else None
    if since not in revisions:
        raise ValueError(
            f"the schema of the database is at {current}, of a newer version, but this version knows only up to "
            f"{revisions[-1]}; start the newer version, or downgrade with "
            f"`python -m state migrate --to {revisions[-1]}`"
        )
    log.warning(
        "the schema of the database is at %s, newer than this version, which can use it from %s on", current, since
    )


_SINCE = select(facts.c.value).where(facts.c.name == COMPATIBLE_SINCE)


def _note_compatible(connection: Connection, script: ScriptDirectory, revision: str) -> None:
    """A step that does not say it needs its own code."""
    if revision == "base" or not inspect(connection).has_table(facts.name):
        return
    since = getattr(script.get_revision(revision).module, COMPATIBLE_SINCE, revision)
    connection.execute(delete(facts).where(facts.c.name == COMPATIBLE_SINCE))
    connection.execute(insert(facts), {"name": COMPATIBLE_SINCE, "value": since})
