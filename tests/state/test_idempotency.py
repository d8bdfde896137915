"""Answers that are kept for requests with an `Idempotency-Key`."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import Connection, insert, select, update
from sqlalchemy.ext.asyncio import create_async_engine

from contract.access import Caller, Scope
from contract.errors import ApiError
from contract.limits import SPARE_BYTES
from state import replies as replies_sql
from state.accounts import api_keys
from state.accounts.organisations import create
from state.database.base import Database
from state.database.open import connect, migrate
from state.database.postgres import POOL_SIZE
from state.database.tables import organisations, replies, reply_quotas
from state.idempotency import MAX_BODY_BYTES, PURPOSE, Attempt, Idempotency, StoredReply
from state.keys import Secrets, mint
from state.replies import LEASE_S
from state.retries import MAX_RETRY_S, RETRY_S
from tests.state.books import fault_of, histories, of_key, rows
from tests.state.doubles import ForgetfulDatabase, InlineDatabase, VirtualTime, WatchedDatabase
from tests.state.servers import Postgres
from tests.waiting import until

KEYRING = Secrets((b"s" * 32,)).derive(PURPOSE)
ROUTE = "POST /audio/voices/designs"

NOW_S, KEEP_S = 1_800_000_000, 24 * 3600
MOST_REPLIES, MOST_BYTES = 3, 20
"""Kept for an organisation."""

NAMES = st.sampled_from(("acme", "acme", "acme too", "rival"))
KEYS, BODIES, REPLICAS = st.sampled_from("kkl"), st.sampled_from("aab"), st.sampled_from((0, 1))
RARELY = st.sampled_from((False, False, True))
ROUTES = st.sampled_from((ROUTE, ROUTE, ROUTE, "POST /decisions"))


async def begin(store: Idempotency, key: str = "k1", body: str = "sha", **where: Any) -> Attempt | StoredReply:
    return await store.begin(of_key(**where), ROUTE, key, body)


async def started(store: Idempotency, key: str = "k1", body: str = "sha", **where: Any) -> Attempt:
    attempt = await begin(store, key, body, **where)
    assert isinstance(attempt, Attempt)
    return attempt


async def stored_key(database: Database, org: str) -> dict[str, Any]:
    def store(connection: Connection) -> dict[str, Any]:
        row = connection.execute(select(organisations).where(organisations.c.name == org)).one_or_none()
        org_id = row.id if row else create(connection, org, "pro", (), 0)
        key = mint()
        about = {"org_id": org_id, "user_id": None, "scopes": frozenset(Scope), "label": None, "now_s": 0}
        api_keys.store(connection, key, KEYRING, **about)
        return {"key_id": key.public_id, "org_id": org_id}

    return await database.run(store)


@dataclass
class Kept:
    """A row as the oracle knows it: `reply` is None while its attempt runs, and without body where that is not kept."""

    body: str
    attempt: object
    created_at: int
    lease_until: int
    reply: tuple[int, bytes | None] | None = None

    @property
    def bytes(self) -> int:
        return len(self.reply[1] or b"") if self.reply else 0


@dataclass
class Work:
    """A request that does the work, in the process of `replica`."""

    replica: int
    owner: tuple[str, str, str]
    attempt: Attempt


class Repetitions(RuleBasedStateMachine):
    """Two processes over one database; three API keys, two of them of one organisation."""

    def __init__(self, runner: asyncio.Runner, time: VirtualTime, callers: dict[str, Caller]) -> None:
        super().__init__()
        self.runner, self.time, self.callers = runner, time, callers
        self.stores = [Idempotency(time.database, KEYRING) for _ in range(2)]
        self.kept: dict[tuple[str, str, str], Kept] = {}
        self.running: list[Work] = []
        self.runner.run(self.begin())

    async def begin(self) -> None:
        await self.time.set(NOW_S)
        for table in (replies, reply_quotas):
            await self.time.database.run(lambda connection, table=table: connection.execute(table.delete()) and None)

    def of_organisation(self, name: str) -> list[Kept]:
        org_id = self.callers[name].org_id
        return [row for (other, _, _), row in self.kept.items() if self.callers[other].org_id == org_id]

    @rule(name=NAMES, key=KEYS, route=ROUTES, body=BODIES, replica=REPLICAS)
    def send(self, name: str, key: str, route: str, body: str, replica: int) -> None:
        owner, caller = (name, route, key), self.callers[name]
        expected, work = self.expected(owner, body), self.stores[replica].begin(caller, route, key, body)
        if isinstance(expected, str):
            assert self.runner.run(fault_of(work)) == expected
            return
        got = self.runner.run(work)
        if expected is not None:
            assert got == expected
            return
        assert isinstance(got, Attempt)
        self.kept[owner] = Kept(body, got, self.time.now_s, self.time.now_s + LEASE_S)
        self.running.append(Work(replica, owner, got))

    def expected(self, owner: tuple[str, str, str], body: str) -> str | StoredReply | None:
        """The fault, the first answer, or None where the work is to be done."""
        row, now_s = self.kept.get(owner), self.time.now_s
        if row is None:
            return "RATE_LIMIT_EXCEEDED" if len(self.of_organisation(owner[0])) == MOST_REPLIES else None
        if row.created_at <= now_s - KEEP_S or (row.reply is None and row.lease_until <= now_s):
            return None
        if row.body != body:
            return "IDEMPOTENCY_MISMATCH"
        if row.reply is None:
            return "IDEMPOTENCY_IN_PROGRESS"
        status, data = row.reply
        return "IDEMPOTENCY_FINISHED" if data is None else StoredReply(status, {"x": "y"}, data)

    def end(self, which: int) -> tuple[Work, Kept | None]:
        """One that ran, and its row if it still has its key."""
        work = self.running.pop(which % len(self.running))
        row = self.kept.get(work.owner)
        return work, row if row and row.attempt is work.attempt else None

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 3), status=st.sampled_from((200, 202)), size=st.sampled_from((None, 10, 10, 11)))
    def finish(self, which: int, status: int, size: int | None) -> None:
        work, row = self.end(which)
        data = None if size is None else b"x" * size
        self.runner.run(work.attempt.finish(status, {"x": "y"}, data))
        if row:
            others = sum(each.bytes for each in self.of_organisation(work.owner[0]))
            row.reply = (status, data if others + (size or 0) <= MOST_BYTES else None)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 3), dies=st.booleans())
    def fail_or_die(self, which: int, dies: bool) -> None:
        work, row = self.end(which)
        if dies:
            self.stores[work.replica]._running.discard(work.attempt)
        else:
            self.runner.run(work.attempt.abandon())
            if row:
                del self.kept[work.owner]

    @rule(which=st.sampled_from((0, 0, -1)), offset=st.sampled_from((-1, 0, 1)), renews=RARELY, forgets=RARELY)
    def pass_time(self, which: int, offset: int, renews: bool, forgets: bool) -> None:
        """To the second before, at or after the next or last end of a lease or answer; then each renews or forgets."""
        ends = [row.created_at + KEEP_S for row in self.kept.values()]
        ends += [row.lease_until for row in self.kept.values() if row.reply is None]
        later = sorted(at for at in ends if at > self.time.now_s) or [self.time.now_s]
        self.runner.run(self.time.set(max(self.time.now_s, later[which] + offset)))
        if renews:
            for store in self.stores:
                self.runner.run(store.renew())
            for row in self.kept.values():
                if row.attempt in [work.attempt for work in self.running] and row.reply is None:
                    row.lease_until = self.time.now_s + LEASE_S
        if forgets:
            self.runner.run(self.stores[0].forget_old())
            self.kept = {name: row for name, row in self.kept.items() if row.created_at > self.time.now_s - KEEP_S}

    @invariant()
    def rows_and_counts_are_as_they_should_be(self) -> None:
        stored, counted = self.runner.run(rows_and_counts(self.time.database))
        names = {caller.key_id: name for name, caller in self.callers.items()}
        assert {(names[row.key_id], row.route, row.idempotency_key): (row.status, row.body) for row in stored} == {
            name: row.reply or (None, None) for name, row in self.kept.items()
        }
        for row in counted:
            mine = [kept for (name, _, _), kept in self.kept.items() if name == names[row.key_id]]
            assert (row.replies, row.body_bytes) == (len(mine), sum(kept.bytes for kept in mine))


async def rows_and_counts(database: Database) -> tuple[list[Any], list[Any]]:
    return await database.run(
        lambda connection: (list(connection.execute(select(replies))), list(connection.execute(select(reply_quotas))))
    )


def test_repetitions_follow_their_table(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies_sql, "KEPT_REPLIES", MOST_REPLIES)
    monkeypatch.setattr(replies_sql, "KEPT_REPLY_BYTES", MOST_BYTES)
    with asyncio.Runner() as runner:
        runner.run(migrate(database_url))
        time = runner.run(VirtualTime.over(database_url, NOW_S))
        orgs = {"acme": "acme", "acme too": "acme", "rival": "rival"}
        callers = {name: of_key(**runner.run(stored_key(time.database, org))) for name, org in orgs.items()}
        run_state_machine_as_test(
            lambda: Repetitions(runner, time, callers),
            settings=histories(7 if "postgresql" in database_url else 30, steps=40),
        )
        runner.run(time.database.close())


@pytest.fixture
def store(database: Database) -> Idempotency:
    return Idempotency(database, KEYRING)


async def test_fifty_at_once_run_once(store: Idempotency) -> None:
    results = await asyncio.gather(*(begin(store) for _ in range(50)), return_exceptions=True)
    assert sum(isinstance(result, Attempt) for result in results) == 1
    assert {r.fault.name for r in results if isinstance(r, ApiError)} == {"IDEMPOTENCY_IN_PROGRESS"}


async def test_claims_of_one_key_that_wait_for_its_count_hold_up_nobody_else(postgres: Postgres) -> None:
    await migrate(url := postgres.fresh())
    database = connect(url)
    store = Idempotency(database, KEYRING)
    busy, other = [await stored_key(database, org) for org in ("busy", "other")]
    await started(store, "first", **busy)
    elsewhere = create_async_engine(url.replace("postgresql", "postgresql+asyncpg"))
    async with elsewhere.begin() as connection:
        await connection.execute(select(reply_quotas).with_for_update())
        waiting = [asyncio.create_task(begin(store, f"k{number}", **busy)) for number in range(POOL_SIZE + 1)]
        await asyncio.create_task(started(store, **other))  # begins after them
        assert not any(task.done() for task in waiting)
    await asyncio.gather(*waiting)
    await elsewhere.dispose()
    await database.close()


async def test_an_answer_that_is_not_kept_is_still_not_done_twice(store: Idempotency) -> None:
    for size in (None, MAX_BODY_BYTES - 1, MAX_BODY_BYTES, MAX_BODY_BYTES + 1):
        await (await started(store, f"{size}")).finish(200, {}, None if size is None else b"x" * size)
        is_kept = size is not None and size <= MAX_BODY_BYTES
        assert await fault_of(begin(store, f"{size}")) == (None if is_kept else "IDEMPOTENCY_FINISHED"), size


async def test_malformed_keys_are_refused_and_the_longest_is_taken(store: Idempotency) -> None:
    for key in ("", "a" * 256, "a b", "a\n", "é", "\x00"):
        assert await fault_of(begin(store, key)) == "INVALID_REQUEST"
    await started(store, "~" * 255)


async def test_an_answer_that_could_not_be_kept_at_once_is_never_worked_for_again(database: Database) -> None:
    error = KeyError("a fault of ours")
    away = WatchedDatabase(database, lambda work: error if getattr(work, "func", None) is replies_sql.keep else None)
    store = Idempotency(away, KEYRING)
    await (await started(store, "k")).finish(200, {}, b"done")
    away.fault = lambda _: None

    async def is_finished() -> bool:
        fault = await fault_of(begin(store, "k"))
        assert fault in ("IDEMPOTENCY_IN_PROGRESS", "IDEMPOTENCY_FINISHED")
        return fault == "IDEMPOTENCY_FINISHED"

    await until(is_finished)


@pytest.mark.virtual
@pytest.mark.parametrize(("outage_s", "later_s"), [(0.1, RETRY_S), (40.0, MAX_RETRY_S)])
async def test_an_answer_is_stored_soon_after_an_outage(outage_s: float, later_s: float) -> None:
    database = InlineDatabase()
    store = Idempotency(database, KEYRING)
    attempt = await started(store)
    database.is_down = True
    await attempt.finish(200, {}, b"done")
    await asyncio.sleep(outage_s)
    database.is_down = False
    await asyncio.sleep(later_s)
    assert await fault_of(begin(store)) == "IDEMPOTENCY_FINISHED"


@pytest.mark.virtual
async def test_a_reply_stays_though_its_commit_was_not_confirmed() -> None:
    store = Idempotency(ForgetfulDatabase(InlineDatabase(), "keep"), KEYRING)
    await (await started(store)).finish(200, {}, b"done")
    await asyncio.sleep(2 * RETRY_S)
    reply = await begin(store)
    assert isinstance(reply, StoredReply)
    assert reply.body == b"done"


async def test_a_key_that_is_used_again_while_old_replies_are_deleted_stays(postgres: Postgres) -> None:
    await migrate(url := postgres.fresh())
    database = connect(url)
    await started(Idempotency(database, KEYRING), **await stored_key(database, "acme"))
    await database.run(lambda c: c.execute(update(replies).values(created_at=0)) and None)
    elsewhere = create_async_engine(url.replace("postgresql", "postgresql+asyncpg"))
    async with elsewhere.begin() as connection:
        await connection.execute(update(replies).values(created_at=int(time.time())))
        forgetting = asyncio.create_task(database.run(replies_sql.forget))

        async def is_waiting() -> bool:
            sessions = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            return await database.run(lambda c: bool(c.exec_driver_sql(sessions).scalar_one()))

        await until(is_waiting)
    assert (await forgetting, await rows(database, replies)) == (0, 1)
    await elsewhere.dispose()
    await database.close()


async def test_a_stored_digest_cannot_be_tried_out_without_the_secret(store: Idempotency, database: Database) -> None:
    for key in ("k1", "k2"):
        await begin(store, key, "sha-of-a-short-state")
    stored = await database.run(lambda connection: list(connection.execute(select(replies))))
    assert "sha-of-a-short-state" not in repr([tuple(row) for row in stored])
    assert len({row.body_sha256 for row in stored}) == 2
    for roots, fault in (
        ((b"n" * 32, b"s" * 32), "IDEMPOTENCY_IN_PROGRESS"),  # after a rotation
        ((b"x" * 32,), "IDEMPOTENCY_FINISHED"),
    ):
        other = Idempotency(database, Secrets(roots).derive(PURPOSE))
        assert await fault_of(begin(other, "k1", "sha-of-a-short-state")) == fault


async def test_what_a_long_outage_left_is_deleted_a_bounded_number_at_a_time(database: Database) -> None:
    row = {"key_id": "k", "route": "r", "attempt": "a", "body_sha256": "s", "created_at": 0, "lease_until": 0}
    many = 2 * replies_sql.AT_ONCE + 1
    await database.run(
        lambda c: c.execute(insert(replies), [{**row, "idempotency_key": f"i-{n}"} for n in range(many)]) and None
    )
    assert await database.run(replies_sql.forget) == replies_sql.AT_ONCE
    counting = WatchedDatabase(database)
    await Idempotency(counting, KEYRING).forget_old()
    assert counting.ran == 2
    assert await rows(database, replies) == 0


async def test_on_a_disk_that_is_nearly_full_only_facts_are_kept(store: Idempotency) -> None:
    for beyond in (-1, 0, 1):
        store.free_bytes = lambda beyond=beyond: SPARE_BYTES + 10 + beyond
        await (await started(store, f"{beyond}")).finish(200, {}, b"x" * 10)
        assert await fault_of(begin(store, f"{beyond}")) == ("IDEMPOTENCY_FINISHED" if beyond < 0 else None), beyond


async def test_a_wrong_count_is_corrected_before_anybody_is_refused(
    store: Idempotency, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies_sql, "KEPT_REPLIES", 3)
    await begin(store, "k")
    # As an older version beside this one leaves it, which deletes rows without counting.
    await database.run(lambda c: c.execute(update(reply_quotas).values(replies=1000)) and None)
    await started(store, "k2")
