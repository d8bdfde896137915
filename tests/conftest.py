"""Fixtures of every folder."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from contract.limits import RATE_WINDOW_S
from state.database.migrate import bring_to


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the schema and nothing else; to copy it is faster than to make it each time."""
    path = tmp_path_factory.mktemp("migrated") / "parlance.db"
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        bring_to(connection)
    engine.dispose()
    return path


@pytest.fixture
def one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test begins together with a window of the rates: their minutes are the clock's, and one could end within."""
    real, late_s = time.time, RATE_WINDOW_S - time.time() % RATE_WINDOW_S
    monkeypatch.setattr(time, "time", lambda: real() + late_s)
