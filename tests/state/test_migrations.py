import asyncio
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Table, func, insert, inspect, select

from state.accounts import organisations
from state.billing import audit
from state.database.base import Database, connect, migrate, open_database
from state.database.migrate import STEPS, _revisions, bring_to
from state.database.tables import (
    acts,
    api_keys,
    budgets,
    drafts,
    facts,
    metadata,
    replies,
    reservations,
    tickets,
    usage_lines,
    users,
    voices,
)

ROWS, USERS = 1_000, 100
REMOVED_BELOW = {
    "0009": {"acts"},
    "0006": {"reply_quotas"},
    "0005": {"drafts"},
    "0004": {"tickets"},
    "0003": {"voices"},
    "0002": {"replies"},
    "0001": {"usage_lines", "reservations"},
}
"""Revision to the tables that the step down to it removes."""


def row(table: Table, **known: Any) -> dict[str, Any]:
    """A row: what is known of it, and something for every other column that must have a value."""
    wanted = [column for column in table.columns if not column.nullable and column.name not in known]
    return known | {c.name: c.type.python_type() for c in wanted if c is not table.autoincrement_column}


def fill(connection: Connection) -> None:
    """Usage lines and reservations, a hundred users with keys and replies, voices, tickets, drafts; right books."""
    org_id = organisations.create(connection, "acme", "pro", (), 0)
    connection.execute(insert(users), [row(users, org_id=org_id, name=f"u{n}") for n in range(USERS)])
    ids = list(connection.execute(select(users.c.id).order_by(users.c.id)).scalars())
    spent = {"org_id": org_id, "spent_micro_eur": 3 * ROWS // USERS}
    connection.execute(insert(budgets), [row(budgets, **spent, user_id=user_id) for user_id in ids])
    connection.execute(budgets.update().where(budgets.c.user_id.is_(None)).values(spent_micro_eur=3 * ROWS))
    lines, ended = {"cost_micro_eur": 3}, {"state": "settled", "held_micro_eur": 5}
    for table, key, known in ((usage_lines, "reservation_id", lines), (reservations, "id", ended)):
        whose = [{"org_id": org_id, "user_id": ids[n % USERS], key: f"id-{n}"} for n in range(ROWS)]
        connection.execute(insert(table), [row(table, **known, **columns) for columns in whose])
    for table, key, known in (
        (api_keys, "public_id", {"org_id": org_id, "scopes": frozenset({"chat"})}),
        (replies, "idempotency_key", {}),
        (voices, "slug", {"org_id": org_id, "gender": "f"}),
        (tickets, "id", {"org_id": org_id, "state": "issued"}),
        (drafts, "id", {"org_id": org_id, "state": "ready"}),
        (acts, "act", {}),
    ):
        connection.execute(insert(table), [row(table, **known, **{key: f"{n}"}) for n in range(USERS)])


def counts(connection: Connection) -> dict[str, int]:
    """Rows of every table but that of facts about the schema itself."""
    present = set(inspect(connection).get_table_names())
    return {
        table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in metadata.sorted_tables
        if table.name in present and table is not facts
    }


async def test_steps_back_and_forth_keep_what_they_do_not_remove(database: Database) -> None:
    await database.run(fill)
    full = await database.run(counts)
    assert full["usage_lines"] == ROWS
    assert await database.run(audit.faults) == []

    gone: set[str] = set()
    for revision, tables in REMOVED_BELOW.items():
        gone |= tables
        await database.run(partial(bring_to, revision=revision))
        assert await database.run(counts) == {name: n for name, n in full.items() if name not in gone}
        await database.run(bring_to)
        assert await database.run(counts) == full | dict.fromkeys(gone, 0)
        if "usage_lines" not in gone:
            assert await database.run(audit.faults) == []

    await database.run(lambda connection: bring_to(connection, "base"))
    assert await database.run(counts) == {}
    await database.run(bring_to)
    assert set((await database.run(counts)).values()) == {0}


async def test_a_step_back_to_code_that_knows_no_terms_lets_nobody_in_and_leaves_what_is_left(
    database: Database,
) -> None:
    def terms(connection: Connection) -> None:
        org_id = organisations.create(connection, "acme", "pro", (), 0)
        keys = {"lasting": None, "passing": 4_000_000_000}
        rows = [row(api_keys, org_id=org_id, public_id=n, scopes=frozenset(), expires_at=s) for n, s in keys.items()]
        connection.execute(insert(api_keys), rows)
        month = {"limit_micro_eur": 100, "spent_micro_eur": 950, "spent_before_micro_eur": 900, "time_zone": "UTC"}
        connection.execute(budgets.update().values(month | {"renews_at": 4_000_000_000}))
        bring_to(connection, "0009")

    await database.run(terms)
    revoked = select(api_keys.c.public_id).where(api_keys.c.revoked_at.is_not(None))
    assert await database.run(lambda connection: connection.execute(revoked).scalars().all()) == ["passing"]
    left = select(budgets.c.limit_micro_eur - budgets.c.spent_micro_eur)
    assert await database.run(lambda connection: connection.execute(left).scalar_one()) == 50


async def test_the_steps_make_the_tables_that_the_code_knows(database: Database) -> None:
    def differences(connection: Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))

    assert await database.run(differences) == []


async def test_a_step_that_fails_leaves_the_schema_as_it_was(database_url: str) -> None:
    database = connect(database_url)

    def half(connection: Connection) -> None:
        bring_to(connection)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.run(half)
    assert await database.run(lambda connection: inspect(connection).get_table_names()) == []
    await database.close()


async def test_opening_again_changes_nothing(database: Database, database_url: str) -> None:
    await database.run(fill)
    before = await database.run(counts)
    again = await open_database(database_url)
    assert await again.run(counts) == before
    await again.close()


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


async def test_an_older_version_runs_on_a_newer_schema_that_only_grew(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    steps = newer_steps(tmp_path)
    assert await database.run(partial(bring_to, steps=steps)) == "9999"
    # Neither a start that may upgrade nor one that may not touches it.
    for upgrading in (True, False):
        again = await open_database(database_url, upgrade=upgrading)
        await again.run(partial(organisations.create, name=f"o-{upgrading}", plan="pro", entitlements=(), now_s=0))
        await again.close()
    names = await database.run(lambda c: {column["name"] for column in inspect(c).get_columns("organisations")})
    assert "colour" in names
    # The newer version can take its step back, and the older one never notices.
    head = await database.run(partial(bring_to, steps=steps, revision=known_head()))
    assert await database.run(partial(bring_to)) == head
    await database.run(lambda connection: organisations.create(connection, "acme", "pro", (), 0))


async def test_an_older_version_refuses_a_newer_schema_that_it_cannot_work_with(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    await database.run(partial(bring_to, steps=newer_steps(tmp_path, since="9999")))
    for upgrading in (True, False):
        with pytest.raises(ValueError, match=r"at 9999, of a newer version.*migrate --to"):
            await open_database(database_url, upgrade=upgrading)


async def test_a_start_that_may_not_migrate_refuses_an_older_schema(database: Database, database_url: str) -> None:
    await database.run(lambda connection: bring_to(connection, "0004"))
    with pytest.raises(ValueError, match="python -m state migrate"):
        await open_database(database_url, upgrade=False)
    head = known_head()
    assert await migrate(database_url) == head
    assert await migrate(database_url, "0004") == "0004"
    assert await migrate(database_url, "head") == head
    with pytest.raises(ValueError, match="no revision `7`"):
        await migrate(database_url, "7")
    await (await open_database(database_url, upgrade=False)).close()


async def test_many_migrate_at_once_and_one_does(database_url: str) -> None:
    heads = await asyncio.gather(*(migrate(database_url) for _ in range(4)))
    assert len(set(heads)) == 1


def known_head() -> str:
    """The newest revision of this code."""
    return _revisions(ScriptDirectory(str(STEPS)))[-1]
