import asyncio
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Table, func, insert, inspect, select, text

from state.accounts import organisations
from state.billing import audit
from state.database import tables
from state.database.base import Database
from state.database.migrate import STEPS, upgrade_schema
from state.database.open import connect, migrate, open_database

ROWS, USERS = 1_000, 100


def row(table: Table, **known: Any) -> dict[str, Any]:
    """A row: what is known of it, and something for every other column that must have a value."""
    wanted = [column for column in table.columns if not column.nullable and column.name not in known]
    return known | {c.name: c.type.python_type() for c in wanted if c is not table.autoincrement_column}


def fill(connection: Connection) -> None:
    org_id = organisations.create(connection, "acme", "pro", (), 0)
    connection.execute(insert(tables.users), [row(tables.users, org_id=org_id, name=f"u{n}") for n in range(USERS)])
    ids = list(connection.execute(select(tables.users.c.id).order_by(tables.users.c.id)).scalars())
    spent = {"org_id": org_id, "spent_micro_eur": 3 * ROWS // USERS}
    connection.execute(insert(tables.budgets), [row(tables.budgets, **spent, user_id=user_id) for user_id in ids])
    connection.execute(
        tables.budgets.update().where(tables.budgets.c.user_id.is_(None)).values(spent_micro_eur=3 * ROWS)
    )
    lines, ended = {"cost_micro_eur": 3}, {"state": "settled", "held_micro_eur": 5}
    for table, key, known in ((tables.usage_lines, "reservation_id", lines), (tables.reservations, "id", ended)):
        whose = [{"org_id": org_id, "user_id": ids[n % USERS], key: f"id-{n}"} for n in range(ROWS)]
        connection.execute(insert(table), [row(table, **known, **columns) for columns in whose])
    for table, key, known in (
        (tables.api_keys, "public_id", {"org_id": org_id, "scopes": frozenset({"chat"})}),
        (tables.replies, "idempotency_key", {}),
        (tables.voices, "slug", {"org_id": org_id, "gender": "f"}),
        (tables.tickets, "id", {"org_id": org_id, "state": "issued"}),
        (tables.drafts, "id", {"org_id": org_id, "state": "ready"}),
        (tables.acts, "act", {}),
    ):
        connection.execute(insert(table), [row(table, **known, **{key: f"{n}"}) for n in range(USERS)])


def counts(connection: Connection) -> dict[str, int]:
    present = set(inspect(connection).get_table_names())
    return {
        table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in tables.metadata.sorted_tables
        if table.name in present and table is not tables.facts
    }


async def test_a_step_back_to_nothing_and_forth_leaves_empty_tables(database: Database) -> None:
    await database.run(fill)
    full = await database.run(counts)
    assert full["usage_lines"] == ROWS
    assert await database.run(audit.faults) == []
    await database.run(lambda connection: upgrade_schema(connection, "base"))
    assert await database.run(counts) == {}
    await database.run(upgrade_schema)
    assert await database.run(counts) == dict.fromkeys(full, 0)


async def test_the_steps_make_the_tables_that_the_code_knows(database: Database) -> None:
    def differences(connection: Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), tables.metadata))

    assert await database.run(differences) == []


async def test_a_step_that_fails_leaves_the_schema_as_it_was(database_url: str) -> None:
    database = connect(database_url)

    def half(connection: Connection) -> None:
        upgrade_schema(connection)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.run(half)
    assert await database.run(lambda connection: inspect(connection).get_table_names()) == []
    await database.close()


NEWER = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{head}"
compatible_since = "{since}"


def upgrade() -> None:
    op.add_column("organisations", sa.Column("colour", sa.Text))


def downgrade() -> None:
    op.drop_column("organisations", "colour")
"""


def newer_steps(folder: Path, since: str | None = None) -> Path:
    """The steps of a later version, which has one more; `since` is the oldest code that can work with it."""
    steps = Path(shutil.copytree(STEPS, folder / "migrations"))
    head = known_head()
    (steps / "versions" / "v9999_colours.py").write_text(NEWER.format(head=head, since=since or head))
    return steps


async def test_an_older_version_runs_on_a_schema_that_grew(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    steps = newer_steps(tmp_path)
    assert await database.run(partial(upgrade_schema, steps=steps)) == "9999"
    # Neither a start that may upgrade nor one that may not touches it.
    for upgrading in (True, False):
        again = await open_database(database_url, upgrade=upgrading)
        await again.run(partial(organisations.create, name=f"o-{upgrading}", plan="pro", entitlements=(), now_s=0))
        await again.close()
    names = await database.run(lambda c: {column["name"] for column in inspect(c).get_columns("organisations")})
    assert "colour" in names
    # The newer version can take its step back, and the older one never notices.
    head = await database.run(partial(upgrade_schema, steps=steps, revision=known_head()))
    assert await database.run(partial(upgrade_schema)) == head
    await database.run(lambda connection: organisations.create(connection, "acme", "pro", (), 0))


async def test_a_newer_schema_and_one_of_development_are_refused_with_what_to_do(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    await database.run(partial(upgrade_schema, steps=newer_steps(tmp_path, since="9999")))
    of_development = text("UPDATE alembic_version SET version_num = '0010'")
    for says in (
        r"at 9999, of a newer version.*migrate --to",
        r"at 0010, of a development version.*docs/operating\.md",
    ):
        for upgrading in (True, False):
            with pytest.raises(ValueError, match=says):
                await open_database(database_url, upgrade=upgrading)
        await database.run(lambda connection: connection.execute(of_development))


async def test_a_start_that_may_not_migrate_refuses_an_older_schema(database: Database, database_url: str) -> None:
    await database.run(lambda connection: upgrade_schema(connection, "base"))
    with pytest.raises(ValueError, match="python -m state migrate"):
        await open_database(database_url, upgrade=False)
    head = known_head()
    assert await migrate(database_url) == head
    assert await migrate(database_url, "base") == "base"
    assert await migrate(database_url, "head") == head
    with pytest.raises(ValueError, match="no revision `7`"):
        await migrate(database_url, "7")
    await (await open_database(database_url, upgrade=False)).close()


async def test_many_migrate_at_once_and_one_does(database_url: str) -> None:
    heads = await asyncio.gather(*(migrate(database_url) for _ in range(4)))
    assert len(set(heads)) == 1


def known_head() -> str:
    return str(ScriptDirectory(str(STEPS)).get_current_head())
