"""Brings the schema to a revision, in the transaction of the caller. Alembic holds the steps in `migrations/`."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

# Replicas that start together must not migrate together; SQLite's BEGIN IMMEDIATE does the same by itself.
_POSTGRES_LOCK = text("SELECT pg_advisory_xact_lock(7311002)")


def _config(connection: Connection) -> Config:
    if connection.dialect.name == "postgresql":
        connection.execute(_POSTGRES_LOCK)
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Steps forwards to `revision`."""
    command.upgrade(_config(connection), revision)


def downgrade(connection: Connection, revision: str) -> None:
    """Steps backwards to `revision` (`base` empties the database)."""
    command.downgrade(_config(connection), revision)
