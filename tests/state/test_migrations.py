import asyncio
import shutil
from functools import partial
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, insert, inspect, select

from state.accounts import organisations
from state.billing import audit
from state.database.base import Database, connect, migrate, open_database
from state.database.migrate import STEPS, _revisions, bring_to
from state.database.tables import (
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

pytestmark = pytest.mark.anyio

ROWS = 10_000
REMOVED_BELOW = {
    "0006": {"reply_quotas"},
    "0005": {"drafts"},
    "0004": {"tickets"},
    "0003": {"voices"},
    "0002": {"replies"},
    "0001": {"usage_lines", "reservations"},
}
"""Revision to the tables that the step down to it removes."""


def fill(connection: Connection, rows: int = ROWS) -> None:
    """Usage lines and reservations, a thousand users with keys and replies, voices, tickets, drafts; right books."""
    org_id = organisations.create(connection, "acme", "pro", (), 0)
    connection.execute(insert(users), [{"org_id": org_id, "name": f"u{n}", "created_at": 0} for n in range(1000)])
    ids = list(connection.execute(select(users.c.id).order_by(users.c.id)).scalars())
    connection.execute(
        insert(budgets),
        [{"org_id": org_id, "user_id": i, "spent_micro_eur": rows // 1000 * 3, "held_micro_eur": 0} for i in ids],
    )
    who = {"org_id": org_id, "key_id": "k", "request_id": "r", "line": "l", "model": "m"}
    billed = {"at_ms": 0, "quantity": 1, "unit": "tokens", "cost_micro_eur": 3}
    ended = {"held_micro_eur": 5, "state": "settled", "created_at": 0, "lease_until": 0}
    lines = [{**who, **billed, "reservation_id": f"id-{n}", "user_id": ids[n % 1000]} for n in range(rows)]
    connection.execute(insert(usage_lines), lines)
    connection.execute(
        insert(reservations), [{**who, **ended, "id": f"id-{n}", "user_id": ids[n % 1000]} for n in range(rows)]
    )
    connection.execute(budgets.update().where(budgets.c.user_id.is_(None)).values(spent_micro_eur=3 * rows))
    key = {"org_id": org_id, "kid": "k", "digest": b"d", "hint": "h", "scopes": frozenset({"chat"}), "created_at": 0}
    connection.execute(insert(api_keys), [{**key, "public_id": f"key-{n}"} for n in range(1000)])
    reply = {"key_id": "k", "route": "r", "attempt": "a", "body_sha256": "s", "created_at": 0, "lease_until": 0}
    connection.execute(insert(replies), [{**reply, "idempotency_key": f"i-{n}"} for n in range(1000)])
    voice = dict.fromkeys(("provider", "label", "age_group", "primary_language", "transcript"), "x")
    voice |= {"org_id": org_id, "gender": "f", "clip_blob": "c", "sample_blob": "s", "created_at": 0}
    connection.execute(insert(voices), [{**voice, "slug": f"v-{n}"} for n in range(10)])
    ticket = {"org_id": org_id, "content_type": "c", "size_bytes": 1, "state": "issued", "blob": ""}
    ticket |= {"expires_at": 0, "sweep_at": 0}
    connection.execute(insert(tickets), [{**ticket, "id": f"t-{n}"} for n in range(10)])
    draft = dict.fromkeys(("key_id", "request_id", "line", "model", "plan"), "x")
    draft |= dict.fromkeys(("created_at", "failures", "cost_micro_eur"), 0)
    draft |= {"org_id": org_id, "state": "ready", "ends_at": 0}
    connection.execute(insert(drafts), [{**draft, "id": f"d-{n}"} for n in range(10)])


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
    await database.run(lambda connection: fill(connection, rows=1000))
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
