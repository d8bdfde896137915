"""Selects the SQLite that opens the file, and its journal: Python's own is often too old for a WAL.

In one process a file belongs to one library: closing it in another drops the locks of the first.
"""

from __future__ import annotations

import sqlite3 as of_python
from types import ModuleType

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import StaticPool

try:
    from pysqlite3 import dbapi2 as newer
except ImportError:  # there are wheels for x86-64 only
    newer = None

driver: ModuleType = newer or of_python
WAL_FIXED = (3, 51, 3)
WAL_BACKPORTS = {(3, 44): 6, (3, 50): 7}


def journal_mode(version: tuple[int, int, int]) -> str:
    """The journal mode that is safe with this version of SQLite. A commit to a WAL waits for the disk once, not thrice.

    From 3.7.0 to 3.51.2 a WAL can be corrupted if one connection writes while another checkpoints, and the command line
    writes beside the server. The fix was backported to 3.44.6 and 3.50.7.
    """
    if version >= WAL_FIXED or version[2] >= WAL_BACKPORTS.get(version[:2], 1 << 30):
        return "WAL"
    return "PERSIST"


def open_file(path: str, wait_s: float) -> Engine:
    """An engine with one connection to the file; `wait_s` is the longest wait for another process."""
    engine = create_engine(
        f"sqlite:///{path}",
        module=driver,
        poolclass=StaticPool,
        hide_parameters=True,
        # Keeps Python from beginning transactions by itself: BEGIN IMMEDIATE is issued by the writer.
        connect_args={"timeout": wait_s, "isolation_level": None, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def configure(raw: of_python.Connection, _record: object) -> None:
        # Not NORMAL: it can lose an acknowledged commit in a power failure.
        raw.execute(f"PRAGMA journal_mode = {journal_mode(driver.sqlite_version_info)}")
        raw.execute("PRAGMA synchronous = FULL")
        raw.execute("PRAGMA foreign_keys = ON")
        # Any write: its commit syncs the journal. Commits that were written, but whose sync failed, can be read from
        # now on, and a retry that finds its rows writes nothing: it would be acknowledged, and lost with the power.
        raw.execute("PRAGMA user_version = 0")

    return engine
