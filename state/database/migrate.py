"""Migrates the schema, in the transaction of the caller. The revisions are in `migrations/`, run by Alembic."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

# Replicas that start together must not migrate together; on SQLite, BEGIN IMMEDIATE sees to that.
_POSTGRES_LOCK = text("SELECT pg_advisory_xact_lock(7311002)")


def _config(connection: Connection) -> Config:
    if connection.dialect.name == "postgresql":
        connection.execute(_POSTGRES_LOCK)
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Migrates forwards to `revision`."""
    command.upgrade(_config(connection), revision)


def downgrade(connection: Connection, revision: str) -> None:
    """Migrates backwards to `revision`; `base` drops every table."""
    command.downgrade(_config(connection), revision)
