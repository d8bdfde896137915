"""A node's clock may be an hour off: what is leased goes by the database's. Facts that several processes revise."""

from __future__ import annotations

import asyncio
import time

import pytest

from state.billing.ledger import Ledger
from state.blobs.base import Blobs
from state.database.base import Clock, Database, connect
from state.drafts import Drafts
from state.facts import revise
from state.idempotency import Idempotency, StoredReply
from state.tickets import Tickets
from tests.state.books import fault_of, make_caller, money, reserve
from tests.state.crashing import DRAFT_MICRO_EUR, PLAN, make
from tests.state.test_idempotency import KEYRING, begin, started

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
    assert await money(database, caller) == (DRAFT_MICRO_EUR, 60)


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
