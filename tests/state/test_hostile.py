"""What an attack found in `state`: none of it works any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, insert, select, update

from contract.access import TARIFFS, Caller, Scope
from contract.errors import ApiError
from state import open_state
from state import replies as replies_sql
from state.billing import audit, postings, reservation, upkeep
from state.billing import ledger as ledger_module
from state.billing.ledger import Ledger
from state.billing.postings import LEASE_S
from state.billing.reservation import Bill, Entry, Usage
from state.blobs.base import open_blobs
from state.database.base import Clock, Database, T, open_database
from state.database.tables import replies, reply_quotas, reservations
from state.drafts import Drafts
from state.idempotency import PURPOSE, Attempt, Idempotency, StoredReply
from state.keyring import SECRET_VARIABLE, Secrets, rotate
from state.tickets import Tickets
from tests.state.books import line_count, make_caller, money, pass_time
from tests.state.crashing import DRAFT_MICRO_EUR, PLAN, make
from tests.state.servers import Postgres

pytestmark = pytest.mark.anyio

KEYRING = Secrets((b"s" * 32,)).derive(PURPOSE)
ROUTE = "POST /x"
HOUR_S = 3600


def of_key(key_id: str = "key") -> Caller:
    return Caller(1, "acme", key_id, TARIFFS["pro"], frozenset(Scope))


class Counting:
    """A database that counts its transactions, and fails those that a test chooses."""

    def __init__(self, database: Database, fails: Callable[[Any], bool] = lambda _: False) -> None:
        self.database = database
        self.fails = fails
        self.ran = 0

    async def run(self, transaction: Callable[[Connection], T], **how: Any) -> T:
        self.ran += 1
        if self.fails(transaction):
            raise KeyError("a fault of ours")
        return await self.database.run(transaction, **how)

    async def close(self) -> None:
        await self.database.close()


# --- 12: a node's clock may be an hour off -------------------------------------------------------------------------


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
async def test_a_node_whose_clock_is_an_hour_off_frees_and_loses_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off_s: int
) -> None:
    caller = await make_caller(database, 1000)
    right, wrong = Ledger(database), Ledger(database)
    store, blobs = Idempotency(database, KEYRING), open_blobs(tmp_path)
    hold = await right.reserve(caller, line="l", model="m", estimate_micro_eur=30, request_id="r")
    attempt = await store.begin(of_key(), ROUTE, "k", "sha")
    ticket = await Tickets(database, blobs).issue(caller, "audio/webm", 10)

    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + off_s)
    assert await wrong.reap() == 0
    theirs = await wrong.reserve(caller, line="l", model="m", estimate_micro_eur=40, request_id="r2")
    with pytest.raises(ApiError) as caught:
        await Idempotency(database, KEYRING).begin(of_key(), ROUTE, "k", "sha")
    assert caught.value.fault.name == "IDEMPOTENCY_IN_PROGRESS"
    await Idempotency(database, KEYRING).forget_old()
    await Tickets(database, blobs).sweep()
    clock = await Clock.by(database)
    assert abs(clock() - real()) < 30

    monkeypatch.setattr(time, "time", real)
    assert await right.reap() == 0
    assert await money(database, caller) == (0, 70)
    assert await hold.settle(30, 1, "tokens") == 30
    assert await theirs.settle(40, 1, "tokens") == 40
    assert isinstance(attempt, Attempt)
    await attempt.finish(200, {}, b"done")
    assert await store.begin(of_key(), ROUTE, "k", "sha") == StoredReply(200, {}, b"done")
    found = await Tickets(database, blobs).find(ticket.id)
    assert found is not None
    assert found.state == "issued"


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
async def test_a_node_whose_clock_is_an_hour_off_takes_no_draft_from_its_worker(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off_s: int
) -> None:
    caller, blobs = await make_caller(database, 1000), open_blobs(tmp_path)
    right = Drafts(database, blobs, await Clock.by(database))
    draft = await right.order(caller, PLAN, model="m", line="l", estimate_micro_eur=60, request_id="r")
    held = await right.claim(draft.id)
    assert held is not None

    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + off_s)
    wrong = Drafts(database, blobs, await Clock.by(database))
    await wrong.expire()
    await wrong.sweep()
    assert await wrong.waiting(9) == []
    assert await wrong.claim(draft.id) is None
    assert await Ledger(database).reap() == 0
    theirs = await wrong.order(caller, PLAN, model="m", line="l", estimate_micro_eur=60, request_id="r2")

    monkeypatch.setattr(time, "time", real)
    assert await make(right, blobs, held) is not None
    assert await right.claim(theirs.id) is not None
    assert await money(database, caller) == (DRAFT_MICRO_EUR, 60)


# --- 4, 10: settles ------------------------------------------------------------------------------------------------


async def test_bills_of_one_organisation_share_transactions(database: Database) -> None:
    counting = Counting(database)
    caller, ledger = await make_caller(database, 1_000_000, 1_000_000), Ledger(counting)
    holds = [
        await ledger.reserve(caller, line="l", model="m", estimate_micro_eur=10, request_id=f"r{n}") for n in range(250)
    ]
    counting.ran = 0
    assert set(await asyncio.gather(*(hold.settle(7, 1, "tokens") for hold in holds))) == {7}
    # The first alone, then whoever came meanwhile, so many at a time.
    assert counting.ran <= 5
    assert await money(database, caller) == (250 * 7, 0)
    assert await line_count(database) == 250


async def test_a_batch_charges_each_bill_as_if_it_came_alone(database: Database) -> None:
    caller = await make_caller(database, 100, 60)
    entries = [Entry(f"id-{n}", caller.org_id, caller.user_id, "k", "r", "l", "m") for n in range(4)]
    # 60 is left to the user: 25 + 25 + 10, and nothing for the last.
    bills = [Bill(entry, Usage(25, 1, "tokens")) for entry in entries]
    assert await database.run(lambda connection: postings.settle(connection, bills)) == [25, 25, 10, 0]
    assert await database.run(lambda connection: postings.settle(connection, bills)) == [25, 25, 10, 0]
    assert await money(database, caller) == (60, 0)


async def test_a_bill_that_cannot_be_written_does_not_stop_its_neighbours(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "RETRY_S", 1000.0)

    def is_poisoned(transaction: Any) -> bool:
        return any(bill.entry.request_id == "poison" for bill in getattr(transaction, "keywords", {}).get("bills", ()))

    caller, ledger = await make_caller(database), Ledger(Counting(database, is_poisoned))
    names = ["a", "b", "poison", *"cdef"]
    holds = [await ledger.reserve(caller, line="l", model="m", estimate_micro_eur=1, request_id=n) for n in names]
    await asyncio.gather(*(hold.settle(5, 1, "tokens") for hold in holds))
    assert await line_count(database) == len(names) - 1
    assert list(ledger._unposted) == [holds[2].entry.id]
    await ledger.close()


async def test_many_settles_of_one_organisation_refuse_nobody(postgres: Postgres) -> None:
    database = await open_database(postgres.empty())
    busy, other = await make_caller(database, org="busy"), await make_caller(database, org="other")
    ledger = Ledger(database)
    holds = [
        await ledger.reserve(busy, line="l", model="m", estimate_micro_eur=10, request_id=f"r{n}") for n in range(2000)
    ]
    await asyncio.gather(*(hold.settle(7, 1, "tokens") for hold in holds))
    assert not ledger._unposted
    for caller in (busy, other):
        await ledger.reserve(caller, line="l", model="m", estimate_micro_eur=1, request_id="r")
    assert await money(database, busy) == (14_000, 0)
    await database.close()


async def test_what_a_stream_has_used_is_marked_and_a_short_call_costs_no_row(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, ledger = await make_caller(database), Ledger(database)
    rows = select(reservations.c.state, reservations.c.used_micro_eur, reservations.c.held_micro_eur)

    async def stored() -> list[tuple[Any, ...]]:
        return await database.run(lambda connection: [tuple(row) for row in connection.execute(rows)])

    hold = await ledger.reserve(caller, line="l", model="m", estimate_micro_eur=1, request_id="r")
    hold.note(5, 2, "tokens")
    await ledger.mark()
    assert await stored() == []
    monkeypatch.setattr(reservation, "MARK_S", 0.0)
    await ledger.mark()
    assert await stored() == [("held", 5, 0)]
    hold.note(9, 4, "tokens")
    await ledger.mark()
    assert await stored() == [("held", 9, 0)]
    await hold.void()
    hold.note(11, 5, "tokens")
    await ledger.mark()
    assert await stored() == [("void", 9, 0)]
    await pass_time(database, LEASE_S + 1)
    assert await ledger.reap() == 0
    assert await line_count(database) == 0


async def test_a_request_that_ends_while_it_is_marked_is_billed_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservation, "MARK_S", 0.0)
    free, limited = await make_caller(database), await make_caller(database, 10_000, org="limited")
    ledger = Ledger(database)
    for caller in (free, limited):
        for turns in range(12):
            hold = await ledger.reserve(caller, line="l", model="m", estimate_micro_eur=10, request_id="r")
            hold.note(3, 1, "tokens")
            marking = asyncio.create_task(ledger.mark())
            for _ in range(turns):
                await asyncio.sleep(0)
            await (hold.settle(7, 1, "tokens") if turns % 2 else hold.void())
            await marking
    await pass_time(database, LEASE_S + 1)
    await Ledger(database).reap()
    assert await money(database, free) == (6 * 7, 0)
    assert await money(database, limited) == (6 * 7, 0)
    assert await line_count(database) == 12


async def test_the_books_say_what_was_recovered(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation, "MARK_S", 0.0)
    caller, dead = await make_caller(database, 100), Ledger(database)
    holds = [
        await dead.reserve(caller, line="l", model="m", estimate_micro_eur=20, request_id=f"r{n}") for n in range(2)
    ]
    holds[0].note(7, 3, "tokens")
    await dead.mark()
    await pass_time(database, LEASE_S + 1)
    assert await Ledger(database).reap() == 2
    assert await money(database, caller) == (7, 0)
    assert await database.run(audit.recovered) == 1


async def test_one_orphan_that_cannot_be_ended_never_stops_the_others(database: Database) -> None:
    caller, dead = await make_caller(database, 100_000), Ledger(database)
    for n in range(upkeep.AT_ONCE + 5):
        await dead.reserve(caller, line="l", model="m", estimate_micro_eur=10, request_id=f"r{n}")
    await pass_time(database, LEASE_S + 1)
    first = (await database.run(upkeep.orphans))[0].id

    def is_first(transaction: Any) -> bool:
        return getattr(transaction, "keywords", {}).get("reservation_id") == first

    assert await Ledger(Counting(database, is_first)).reap() == upkeep.AT_ONCE + 4
    assert await money(database, caller) == (0, 10)


# --- 9: `Idempotency-Key` ------------------------------------------------------------------------------------------


async def test_work_that_takes_longer_than_a_lease_is_not_done_twice(database: Database) -> None:
    store, other = Idempotency(database, KEYRING), Idempotency(database, KEYRING)
    attempt = await store.begin(of_key(), ROUTE, "k", "sha")
    for _ in range(3):
        await pass_time(database, replies_sql.LEASE_S - 30)
        await store.renew()
        with pytest.raises(ApiError) as caught:
            await other.begin(of_key(), ROUTE, "k", "sha")
        assert caught.value.fault.name == "IDEMPOTENCY_IN_PROGRESS"
    assert isinstance(attempt, Attempt)
    await attempt.finish(200, {}, b"done")
    assert isinstance(await other.begin(of_key(), ROUTE, "k", "sha"), StoredReply)


async def test_an_answer_that_could_not_be_kept_at_once_is_never_worked_for_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state.idempotency.RETRY_S", 0.001)
    away = [True]

    def is_keeping(transaction: Any) -> bool:
        return away[0] and getattr(transaction, "func", None) is replies_sql.keep

    store = Idempotency(Counting(database, is_keeping), KEYRING)
    attempt = await store.begin(of_key(), ROUTE, "k", "sha")
    assert isinstance(attempt, Attempt)
    await attempt.finish(200, {}, b"done")
    away[0] = False
    await asyncio.gather(*store._tasks)
    with pytest.raises(ApiError) as caught:
        await store.begin(of_key(), ROUTE, "k", "sha")
    assert caught.value.fault.name == "IDEMPOTENCY_FINISHED"


async def test_a_stored_digest_cannot_be_tried_out_without_the_secret(database: Database) -> None:
    store = Idempotency(database, KEYRING)
    for key in ("k1", "k2"):
        await store.begin(of_key(), ROUTE, key, "sha-of-a-short-state")
    rows = await database.run(lambda connection: list(connection.execute(select(replies))))
    assert "sha-of-a-short-state" not in repr([tuple(row) for row in rows])
    assert len({row.body_sha256 for row in rows}) == 2
    later = Secrets((b"n" * 32, b"s" * 32)).derive(PURPOSE)
    with pytest.raises(ApiError) as caught:
        await Idempotency(database, later).begin(of_key(), ROUTE, "k1", "sha-of-a-short-state")
    assert caught.value.fault.name == "IDEMPOTENCY_IN_PROGRESS"
    unrelated = Secrets((b"x" * 32,)).derive(PURPOSE)
    with pytest.raises(ApiError) as caught:
        await Idempotency(database, unrelated).begin(of_key(), ROUTE, "k1", "sha-of-a-short-state")
    assert caught.value.fault.name == "IDEMPOTENCY_FINISHED"


async def test_a_digest_of_an_older_version_stays_valid(database: Database) -> None:
    store = Idempotency(database, KEYRING)
    attempt = await store.begin(of_key(), ROUTE, "k", "sha")
    assert isinstance(attempt, Attempt)
    await attempt.finish(200, {}, b"done")
    await database.run(
        lambda connection: connection.execute(update(replies).values(kid=None, body_sha256="sha")) and None
    )
    assert isinstance(await store.begin(of_key(), ROUTE, "k", "sha"), StoredReply)
    with pytest.raises(ApiError) as caught:
        await store.begin(of_key(), ROUTE, "k", "other")
    assert caught.value.fault.name == "IDEMPOTENCY_MISMATCH"


# --- 11: clean-ups and quotas --------------------------------------------------------------------------------------


async def test_what_a_long_outage_left_is_deleted_a_bounded_number_at_a_time(database: Database) -> None:
    row = {"key_id": "k", "route": "r", "attempt": "a", "body_sha256": "s", "created_at": 0, "lease_until": 0}
    many = 2 * replies_sql.AT_ONCE + 1
    await database.run(
        lambda c: c.execute(insert(replies), [{**row, "idempotency_key": f"i-{n}"} for n in range(many)]) and None
    )
    assert await database.run(replies_sql.forget) == replies_sql.AT_ONCE
    counting = Counting(database)
    await Idempotency(counting, KEYRING).forget_old()
    assert counting.ran == 2
    assert await database.run(lambda c: c.execute(select(func.count()).select_from(replies)).scalar_one()) == 0


@pytest.mark.parametrize(("kept", "status"), [(2, 200), (3, 429), (4, 429)])
async def test_a_key_may_have_so_many_answers_kept(
    database: Database, monkeypatch: pytest.MonkeyPatch, kept: int, status: int
) -> None:
    monkeypatch.setattr(replies_sql, "KEPT_REPLIES", 3)
    store = Idempotency(database, KEYRING)
    for n in range(min(kept, 3)):
        await store.begin(of_key(), ROUTE, f"k{n}", "sha")
    if status == 200:
        assert isinstance(await store.begin(of_key(), ROUTE, "new", "sha"), Attempt)
        return
    with pytest.raises(ApiError) as caught:
        await store.begin(of_key(), ROUTE, "new", "sha")
    assert (caught.value.fault.status, caught.value.retry_after_s) == (429, 60)
    # Of this key alone, and only until old ones are gone.
    assert isinstance(await store.begin(of_key("other"), ROUTE, "new", "sha"), Attempt)
    await pass_time(database, replies_sql.KEEP_S)
    await store.forget_old()
    assert isinstance(await store.begin(of_key(), ROUTE, "new", "sha"), Attempt)


@pytest.mark.parametrize(("size", "is_kept"), [(9, True), (10, True), (11, False)])
async def test_bodies_beyond_the_quota_are_kept_as_facts(
    database: Database, monkeypatch: pytest.MonkeyPatch, size: int, is_kept: bool
) -> None:
    monkeypatch.setattr(replies_sql, "KEPT_REPLY_BYTES", 20)
    store = Idempotency(database, KEYRING)
    for key, body in (("k1", b"x" * 10), ("k2", b"x" * size)):
        attempt = await store.begin(of_key(), ROUTE, key, "sha")
        assert isinstance(attempt, Attempt)
        await attempt.finish(200, {}, body)
    counted = await database.run(lambda c: c.execute(select(reply_quotas)).one())
    assert (counted.replies, counted.body_bytes) == (2, 10 + size * is_kept)
    if is_kept:
        assert isinstance(await store.begin(of_key(), ROUTE, "k2", "sha"), StoredReply)
        return
    with pytest.raises(ApiError) as caught:
        await store.begin(of_key(), ROUTE, "k2", "sha")
    assert caught.value.fault.name == "IDEMPOTENCY_FINISHED"


async def test_a_wrong_count_is_corrected_before_anybody_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies_sql, "KEPT_REPLIES", 3)
    store = Idempotency(database, KEYRING)
    await store.begin(of_key(), ROUTE, "k", "sha")
    # As an older version beside this one leaves it, which deletes rows without counting.
    await database.run(lambda c: c.execute(update(reply_quotas).values(replies=1000)) and None)
    assert isinstance(await store.begin(of_key(), ROUTE, "k2", "sha"), Attempt)


# --- 13: one secret ------------------------------------------------------------------------------------------------


async def test_servers_that_share_something_need_one_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    for database_url, redis_url in (("postgresql://u@127.0.0.1:1/x", None), (None, "redis://127.0.0.1:1")):
        with pytest.raises(ValueError, match=f"one secret: set {SECRET_VARIABLE}"):
            await open_state(tmp_path, database_url, redis_url)
    assert not (tmp_path / "secrets").exists()


async def test_a_server_with_another_secret_does_not_start(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = ("1a" * 32, "2b" * 32, "3c" * 32)

    async def start(secret: str) -> None:
        monkeypatch.setenv(SECRET_VARIABLE, secret)
        await (await open_state(tmp_path, database_url, upgrade=True)).close()

    await start(one)
    with pytest.raises(ValueError, match="another secret"):
        await start(two)
    # A rotation: the new one with the previous one behind it. From then on the old one alone is too old.
    await start(f"{two},{one}")
    await start(two)
    with pytest.raises(ValueError, match="another secret"):
        await start(one)
    with pytest.raises(ValueError, match="another secret"):
        await start(f"{three},{one}")


async def test_a_rotated_file_is_the_same_secret(tmp_path: Path) -> None:
    for _ in range(3):
        await (await open_state(tmp_path)).close()
        rotate(tmp_path, {})
    await (await open_state(tmp_path)).close()
