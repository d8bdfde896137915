"""Fifty planted secrets, and every text that the package makes while it works and while it fails."""

import logging
import traceback
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert

from contract.access import Scope
from contract.errors import ApiError
from state import keys, open_state
from state.accounts import api_keys
from state.accounts.authentication import PEPPER
from state.database.base import Database, RowRefused, open_database
from state.database.tables import api_keys as keys_table
from state.keys import open_secrets
from tests.state.books import make_caller

PLANTED = 50


async def test_planted_secrets_show_up_nowhere(
    tmp_path: Path,
    database_url: str,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PARLANCE_SECRET", "5e" * 32)
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    state = await open_state(tmp_path, database_url, upgrade=True)
    pepper = open_secrets(tmp_path).derive(PEPPER)
    org_id = (await make_caller(state.database)).org_id
    planted = [keys.mint() for _ in range(PLANTED)]
    for key in planted:
        await state.database.run(lambda connection, key=key: store(connection, key, pepper, org_id))
        caller = await state.accounts.authenticate(f"Bearer {key.text}")
        texts += [repr(key), str(key), repr(caller), repr(await state.accounts.describe(caller))]
        for header in (f"Basic {key.text}", f"Bearer {key.text[:-1]}", f"Bearer {key.text}!", key.text):
            texts.append(await failure(state.accounts.authenticate(header)))
        # Twice the same row: the database's own message could quote it.
        texts.append(await failure(state.database.run(lambda c, key=key: store(c, key, pepper, org_id))))
        await state.database.run(lambda connection, key=key: api_keys.revoke(connection, key.public_id, 1))
    await broken_statements(state.database, planted[0], texts)
    rows = await state.database.run(lambda connection: api_keys.list_keys(connection, org_id))
    await state.close()
    texts += [repr(state.secrets), repr(state.accounts), repr(pepper), repr(planted)]

    captured = capsys.readouterr()
    everything = "\n".join([*texts, caplog.text, captured.out, captured.err])
    stored = repr([tuple(row) for row in rows])
    for key in planted:
        hidden = key.text.split("_")[2]
        assert hidden not in everything
        assert hidden[:43] not in everything
        assert hidden not in stored
        assert repr(pepper.sign(key.text.encode())) not in everything
    roots = state.secrets.roots
    assert all(root.hex() not in everything and repr(root) not in everything for root in roots)


async def broken_statements(database: Database, key: keys.Key, texts: list[str]) -> None:
    def missing_column(connection: Connection) -> None:
        connection.execute(insert(keys_table), {"public_id": "x", "digest": key.text.encode(), "hint": key.text})

    texts.append(await failure(database.run(missing_column)))


async def failure(work) -> str:
    try:
        await work
    except (ApiError, RowRefused) as error:
        return "".join(traceback.format_exception(error)) + repr(error) + str(error)
    pytest.fail("this had to fail")


def store(connection: Connection, key: keys.Key, pepper, org_id: int) -> None:
    api_keys.store(
        connection, key, pepper, org_id=org_id, user_id=None, scopes=frozenset({Scope.CHAT}), label=None, now_s=0
    )


async def test_the_database_file_holds_no_key(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'p.db'}"
    database = await open_database(url)
    org_id = (await make_caller(database)).org_id
    key, pepper = keys.mint(), open_secrets(tmp_path).derive(PEPPER)
    await database.run(lambda connection: store(connection, key, pepper, org_id))
    await database.close()
    assert key.text.split("_")[2][:-4].encode() not in (tmp_path / "p.db").read_bytes()
    assert open_secrets(tmp_path).roots[0] not in (tmp_path / "p.db").read_bytes()
