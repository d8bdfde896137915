"""Answers that are kept, nodes whose clock is an hour off, and facts that several processes revise."""

import asyncio
import time
from typing import Any

import pytest
from sqlalchemy import Connection, func, insert, select, update

from contract.access import Scope
from contract.errors import ApiError
from contract.limits import SPARE_BYTES
from state import replies as replies_sql
from state.accounts import api_keys
from state.accounts.organisations import create
from state.billing.ledger import Ledger
from state.blobs.base import Blobs
from state.database.base import Clock, Database
from state.database.open import connect
from state.database.tables import organisations, replies, reply_quotas
from state.drafts import Drafts
from state.facts import revise
from state.idempotency import MAX_BODY_BYTES, PURPOSE, Attempt, Idempotency, StoredReply
from state.keys import Secrets, mint
from state.replies import KEEP_S, LEASE_S
from state.tickets import Tickets
from tests.state.books import SLACK_S, fault_of, make_caller, money, of_key, pass_time, refusal, reserve, rows
from tests.state.crashing import make
from tests.state.doubles import WatchedDatabase
from tests.state.drafts import COST, PLAN

KEYRING = Secrets((b"s" * 32,)).derive(PURPOSE)
ROUTE = "POST /audio/voices/designs"


async def begin(store: Idempotency, key: str = "k1", body: str = "sha", **where: Any) -> Attempt | StoredReply:
    return await store.begin(of_key(**where), ROUTE, key, body)


async def started(store: Idempotency, key: str = "k1", body: str = "sha", **where: Any) -> Attempt:
    attempt = await begin(store, key, body, **where)
    assert isinstance(attempt, Attempt)
    return attempt


@pytest.fixture
def store(database: Database) -> Idempotency:
    return Idempotency(database, KEYRING)


async def test_the_second_time_gets_the_first_answer(store: Idempotency) -> None:
    await (await started(store)).finish(202, {"content-type": "application/json"}, b'{"id": "vd_1"}')
    for _ in range(2):
        assert await begin(store) == StoredReply(202, {"content-type": "application/json"}, b'{"id": "vd_1"}')


async def test_fifty_at_once_run_once(store: Idempotency) -> None:
    results = await asyncio.gather(*(begin(store) for _ in range(50)), return_exceptions=True)
    assert sum(isinstance(result, Attempt) for result in results) == 1
    assert {r.fault.name for r in results if isinstance(r, ApiError)} == {"IDEMPOTENCY_IN_PROGRESS"}


async def test_another_body_is_a_mismatch_running_or_done(store: Idempotency) -> None:
    attempt = await started(store)
    assert await fault_of(begin(store, body="other")) == "IDEMPOTENCY_MISMATCH"
    await attempt.finish(200, {}, b"")
    assert await fault_of(begin(store, body="other")) == "IDEMPOTENCY_MISMATCH"


async def test_keys_of_other_callers_and_routes_are_others(store: Idempotency) -> None:
    await started(store)
    await started(store, key_id="other")
    assert isinstance(await store.begin(of_key(), "POST /decisions", "k1", "sha"), Attempt)


async def test_an_abandoned_key_is_free(store: Idempotency) -> None:
    await (await started(store)).abandon()
    await started(store, body="other")


@pytest.mark.parametrize(("passed_s", "free"), [(LEASE_S - SLACK_S, False), (LEASE_S, True)])
async def test_a_crashed_run_frees_its_key(store: Idempotency, database: Database, passed_s: int, free: bool) -> None:
    late = await started(store)
    await pass_time(database, passed_s)
    if not free:
        assert await fault_of(begin(store)) == "IDEMPOTENCY_IN_PROGRESS"
        return
    second = await started(store)
    await late.finish(500, {}, b"too late")
    await second.finish(200, {}, b"second")
    assert (await begin(store)).body == b"second"  # type: ignore[union-attr]


@pytest.mark.parametrize(("passed_s", "fresh"), [(KEEP_S - SLACK_S, False), (KEEP_S, True)])
async def test_answers_are_kept_for_a_day(store: Idempotency, database: Database, passed_s: int, fresh: bool) -> None:
    await (await started(store)).finish(200, {}, b"x")
    await pass_time(database, passed_s)
    assert isinstance(await begin(store), Attempt if fresh else StoredReply)
    await store.forget_old()


@pytest.mark.parametrize("size", [None, MAX_BODY_BYTES - 1, MAX_BODY_BYTES, MAX_BODY_BYTES + 1])
async def test_an_answer_that_is_not_kept_is_still_not_done_twice(store: Idempotency, size: int | None) -> None:
    await (await started(store)).finish(200, {}, None if size is None else b"x" * size)
    is_kept = size is not None and size <= MAX_BODY_BYTES
    assert await fault_of(begin(store)) == (None if is_kept else "IDEMPOTENCY_FINISHED")


async def test_malformed_keys_are_refused_and_the_longest_is_taken(store: Idempotency) -> None:
    for key in ("", "a" * 256, "a b", "a\n", "é", "\x00"):
        assert await fault_of(begin(store, key)) == "INVALID_REQUEST"
    await started(store, "~" * 255)


async def test_work_that_takes_longer_than_a_lease_is_not_done_twice(store: Idempotency, database: Database) -> None:
    other = Idempotency(database, KEYRING)
    attempt = await started(store, "k")
    for _ in range(3):
        await pass_time(database, LEASE_S - SLACK_S)
        await store.renew()
        assert await fault_of(begin(other, "k")) == "IDEMPOTENCY_IN_PROGRESS"
    await attempt.finish(200, {}, b"done")
    assert isinstance(await begin(other, "k"), StoredReply)


async def test_an_answer_that_could_not_be_kept_at_once_is_never_worked_for_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state.idempotency.RETRY_S", 0.001)
    error = KeyError("a fault of ours")
    away = WatchedDatabase(database, lambda work: error if getattr(work, "func", None) is replies_sql.keep else None)
    store = Idempotency(away, KEYRING)
    await (await started(store, "k")).finish(200, {}, b"done")
    away.fault = lambda _: None
    await asyncio.gather(*store._tasks)
    assert await fault_of(begin(store, "k")) == "IDEMPOTENCY_FINISHED"


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


async def test_a_digest_of_an_older_version_stays_valid(store: Idempotency, database: Database) -> None:
    await (await started(store, "k")).finish(200, {}, b"done")
    await database.run(
        lambda connection: connection.execute(update(replies).values(kid=None, body_sha256="sha")) and None
    )
    assert isinstance(await begin(store, "k"), StoredReply)
    assert await fault_of(begin(store, "k", "other")) == "IDEMPOTENCY_MISMATCH"


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


async def stored_key(database: Database, org: str) -> dict[str, Any]:
    def store(connection: Connection) -> dict[str, Any]:
        row = connection.execute(select(organisations).where(organisations.c.name == org)).one_or_none()
        org_id = row.id if row else create(connection, org, "pro", (), 0)
        key = mint()
        about = {"org_id": org_id, "user_id": None, "scopes": frozenset(Scope), "label": None, "now_s": 0}
        api_keys.store(connection, key, KEYRING, **about)
        return {"key_id": key.public_id, "org_id": org_id}

    return await database.run(store)


async def test_an_organisation_may_have_so_many_answers_kept_by_all_its_keys(
    store: Idempotency, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies_sql, "KEPT_REPLIES", 3)
    keys = [await stored_key(database, org) for org in ("acme", "acme", "rival")]
    for n in range(3):
        await started(store, f"k{n}", **keys[n % 2])
    for key in keys[:2]:
        error = await refusal(begin(store, "new", **key))
        assert (error.fault.status, error.retry_after_s) == (429, 60)
    # Of this organisation alone, and only until old ones are gone.
    await started(store, "new", **keys[2])
    await pass_time(database, KEEP_S)
    await store.forget_old()
    await started(store, "new", **keys[0])


@pytest.mark.parametrize(("size", "is_kept"), [(9, True), (10, True), (11, False)])
async def test_bodies_beyond_the_quota_are_kept_as_facts(
    store: Idempotency, database: Database, monkeypatch: pytest.MonkeyPatch, size: int, is_kept: bool
) -> None:
    monkeypatch.setattr(replies_sql, "KEPT_REPLY_BYTES", 20)
    one, other = [await stored_key(database, "acme") for _ in range(2)]
    for key, caller, body in (("k1", one, b"x" * 10), ("k2", other, b"x" * size)):
        await (await started(store, key, **caller)).finish(200, {}, body)
    counted = await database.run(lambda c: c.execute(select(func.sum(reply_quotas.c.body_bytes))).scalar_one())
    assert counted == 10 + size * is_kept
    assert await fault_of(begin(store, "k2", **other)) == (None if is_kept else "IDEMPOTENCY_FINISHED")


@pytest.mark.parametrize(("beyond", "is_kept"), [(-1, False), (0, True), (1, True)])
async def test_on_a_disk_that_is_nearly_full_only_facts_are_kept(
    store: Idempotency, beyond: int, is_kept: bool
) -> None:
    store.free_bytes = lambda: SPARE_BYTES + 10 + beyond
    await (await started(store)).finish(200, {}, b"x" * 10)
    assert await fault_of(begin(store)) == (None if is_kept else "IDEMPOTENCY_FINISHED")


async def test_a_wrong_count_is_corrected_before_anybody_is_refused(
    store: Idempotency, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies_sql, "KEPT_REPLIES", 3)
    await begin(store, "k")
    # As an older version beside this one leaves it, which deletes rows without counting.
    await database.run(lambda c: c.execute(update(reply_quotas).values(replies=1000)) and None)
    await started(store, "k2")


HOUR_S = 3600


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
async def test_a_node_whose_clock_is_an_hour_off_frees_and_loses_nothing(
    database: Database, blobs: Blobs, monkeypatch: pytest.MonkeyPatch, off_s: int
) -> None:
    caller = await make_caller(database, 900)
    right, wrong = Ledger(database), Ledger(database)
    store = Idempotency(database, KEYRING)
    hold = await reserve(right, caller, 30)
    attempt = await started(store)
    ticket = await Tickets(database, blobs).issue(caller, "audio/webm", 10)

    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + off_s)
    assert await wrong.reap() == 0
    theirs = await reserve(wrong, caller, 40)
    other = Idempotency(database, KEYRING)
    assert await fault_of(begin(other)) == "IDEMPOTENCY_IN_PROGRESS"
    await other.forget_old()
    await Tickets(database, blobs).sweep()
    clock = await Clock.by(database)
    assert abs(clock() - real()) < 30

    monkeypatch.setattr(time, "time", real)
    assert await right.reap() == 0
    assert await money(database, caller) == (0, 70)
    assert await hold.settle(30, 1, "tokens") == 30
    assert await theirs.settle(40, 1, "tokens") == 40
    await attempt.finish(200, {}, b"done")
    assert await begin(store) == StoredReply(200, {}, b"done")
    found = await Tickets(database, blobs).find(ticket.id)
    assert found is not None
    assert found.state == "issued"


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
async def test_a_node_whose_clock_is_an_hour_off_takes_no_draft_from_its_worker(
    database: Database, blobs: Blobs, monkeypatch: pytest.MonkeyPatch, off_s: int
) -> None:
    caller = await make_caller(database, 900)
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
    assert await money(database, caller) == (COST, 60)


def one_more(text: str | None) -> str:
    return str(int(text or 0) + 1)


async def test_revisions_of_many_at_once_are_all_there(database: Database, database_url: str) -> None:
    others = [connect(database_url) for _ in range(3)]
    await asyncio.gather(*(revise(one, {"b": one_more, "a": one_more}) for one in [database, *others] * 5))
    assert await revise(database, {"a": one_more}) == {"a": "21"}
    assert await revise(database, {"b": one_more}) == {"b": "21"}
    for one in others:
        await one.close()


async def test_a_fact_that_is_not_there_is_none(database: Database) -> None:
    seen: list[str | None] = []

    def see(text: str | None) -> str:
        seen.append(text)
        return "x"

    await revise(database, {"new": see})
    await revise(database, {"new": see})
    assert seen == [None, "x"]
