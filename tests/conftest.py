"""Fixtures of every folder."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from contract.limits import RATE_WINDOW_S
from state.database.migrate import bring_to
from tests.tiers import marker_of, scope_of, turn_of

ROOT = Path(__file__).parents[1]
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 8 << 30
"""How much of the memory's file system must be free, so that temporary folders are made there."""


def pytest_configure() -> None:
    """Puts temporary folders into memory where there is room: thousands of tests wait for what they write durably."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives each test the marker of its file, and moves what takes longest to the front."""
    files = {item.path: item.path.relative_to(ROOT).as_posix() for item in items}
    for item in items:
        if marker := marker_of(files[item.path]):
            item.add_marker(marker)
    items.sort(key=lambda item: turn_of(files[item.path]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of `--dist=loadfile`: a process gets a file at a time, or all files of one scope."""
    from xdist.scheduler import LoadFileScheduling

    class ByScope(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(super()._split_scope(nodeid))

    return ByScope(config, log) if config.getvalue("dist") == "loadfile" else None


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
