"""Fixtures of every folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine

from state.database.migrate import upgrade


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the schema and nothing else; to copy it is faster than to make it each time."""
    path = tmp_path_factory.mktemp("migrated") / "parlance.db"
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        upgrade(connection)
    engine.dispose()
    return path
