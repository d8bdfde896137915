"""The first key of an embedded server.

The key is written to `demo.key.new`, then stored, then the file is renamed: whenever the process dies, the next start
finishes or starts over, and there is never a `demo.key` that does not work.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from contract.access import Scope
from state import keys
from state.accounts import acts, api_keys, organisations
from state.blobs.folder import sync_folder
from state.database.base import Database
from state.keys import Keyring

ORGANISATION = "demo"
PLAN = "pro"
FILE = "demo.key"


async def create_demo(database: Database, pepper: Keyring, home: Path) -> str | None:
    """Creates organisation and key unless the organisation exists. Returns the key's text, or None."""
    lock = await asyncio.to_thread(_lock, home)
    try:
        return await _create_alone(database, pepper, home / f"{FILE}.new", home / FILE)
    finally:
        os.close(lock)


async def _create_alone(database: Database, pepper: Keyring, pending: Path, final: Path) -> str | None:
    earlier = _read(pending)
    if earlier is not None and await database.run(partial(api_keys.find, public_id=earlier.public_id)) is not None:
        os.replace(pending, final)
        return earlier.text
    key = keys.mint()
    _write(pending, key)
    if not await database.run(partial(_create_organisation, key=key, pepper=pepper)):
        os.unlink(pending)
        return None
    os.replace(pending, final)
    return key.text


def _lock(home: Path) -> int:
    """Waits until no other process is creating the key. Closing the returned descriptor unlocks."""
    home.mkdir(parents=True, exist_ok=True)
    lock = os.open(home / f"{FILE}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _read(path: Path) -> keys.Key | None:
    return keys.read(path.read_text().strip()) if path.exists() else None


def _write(path: Path, key: keys.Key) -> None:
    path.unlink(missing_ok=True)
    keys.write_private(path, key.text)
    sync_folder(path.parent)


def _create_organisation(connection: Connection, key: keys.Key, pepper: Keyring) -> bool:
    """Creates the organisation with the key. Returns False if it exists."""
    if organisations.is_taken(connection, ORGANISATION):
        return False
    now_s = int(time.time())
    org_id = organisations.create(connection, ORGANISATION, PLAN, (), now_s)
    every = frozenset(Scope)
    api_keys.store(connection, key, pepper, org_id=org_id, user_id=None, scopes=every, label="first start", now_s=now_s)
    acts.record(connection, "first start", f"done: organisation {ORGANISATION} with key {key.public_id}")
    return True
