"""Bills in spite of everything: processes that died, clients that left, a database that is away, many at once."""

import asyncio
import gc
from functools import partial
from itertools import product
from typing import Any

import pytest
from sqlalchemy import select

from contract.errors import STATE_UNAVAILABLE, ApiError
from state import retries
from state.billing import ledger as ledger_module
from state.billing import postings, reservation, upkeep
from state.billing.ledger import Ledger
from state.billing.postings import LEASE_S
from state.billing.reservation import Reservation
from state.billing.usage import Bill, Entry, Usage
from state.database.base import Database, RowRefused
from state.database.tables import reservations
from tests.state.books import SLACK_S, fault_of, line_count, make_caller, money, opened, pass_time, reserve, rows
from tests.state.doubles import LateDatabase, WatchedDatabase
from tests.waiting import until

OURS = KeyError("a fault of ours")


async def test_a_reservation_that_a_bug_forgot_is_given_back(database: Database) -> None:
    caller, ledger = await make_caller(database, 100), Ledger(database)
    await reserve(ledger, caller, 30)
    gc.collect()
    await pass_time(database, LEASE_S - SLACK_S)
    await ledger.renew()
    await pass_time(database, SLACK_S + 1)
    assert await ledger.reap() == 1
    assert await money(database, caller) == (0, 0)


async def test_several_reapers_give_back_once(database: Database) -> None:
    caller, dead = await make_caller(database, 300), Ledger(database)
    await asyncio.gather(*(reserve(dead, caller, 10) for _ in range(30)))
    await pass_time(database, LEASE_S + 1)
    reapers = [Ledger(database) for _ in range(4)]
    assert sum(await asyncio.gather(*(reaper.reap() for reaper in reapers))) == 30
    assert await money(database, caller) == (0, 0)


async def test_ended_reservations_are_forgotten_after_a_day_and_lines_are_not(database: Database) -> None:
    caller, ledger = await make_caller(database, 100), Ledger(database)
    await (await reserve(ledger, caller, 10)).settle(10, 1, "tokens")
    await pass_time(database, LEASE_S + upkeep.KEEP_S + 1)
    await ledger.forget_old()
    assert await rows(database, reservations) == 0
    assert await line_count(database) == 1


async def test_one_orphan_that_cannot_be_ended_never_stops_the_others(database: Database) -> None:
    caller = await make_caller(database, 100_000)
    for n in range(upkeep.AT_ONCE + 5):
        entry = Entry(f"id-{n}", caller.org_id, None, "k", f"r{n}", "l", "m")
        await database.run(partial(postings.reserve, entry=entry, amount=10))
    await pass_time(database, LEASE_S + 1)
    first = (await database.run(upkeep.orphans))[0].id

    def fault(transaction: Any) -> Exception | None:
        return OURS if getattr(transaction, "keywords", {}).get("reservation_id") == first else None

    assert await Ledger(WatchedDatabase(database, fault)).reap() == upkeep.AT_ONCE + 4
    assert await money(database, caller) == (0, 10)


async def test_what_a_stream_has_used_is_marked_and_a_short_call_costs_no_row(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, ledger = await make_caller(database), Ledger(database)
    query = select(reservations.c.state, reservations.c.used_micro_eur, reservations.c.held_micro_eur)

    async def stored() -> list[tuple[Any, ...]]:
        return await database.run(lambda connection: [tuple(row) for row in connection.execute(query)])

    hold = await reserve(ledger, caller, 1, "r")
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


def is_void_of(hold: Reservation, transaction: Any) -> bool:
    return transaction.func is postings.void and transaction.keywords["entry"] is hold.entry


@pytest.mark.usefixtures("marks_at_once")
async def test_a_failed_stream_is_not_billed_later_because_the_database_was_away(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_S", 0.001)
    caller, away = await make_caller(database, 1000), WatchedDatabase(database)
    ledger = Ledger(away)
    hold = await reserve(ledger, caller, 10)
    hold.note(9, 4, "tokens")
    await ledger.mark()
    failures = iter([STATE_UNAVAILABLE()] * 3)
    # The purse is released by the same transaction, and is not tried again.
    away.fault = lambda transaction: next(failures, None) if is_void_of(hold, transaction) else None
    await hold.void()
    await pass_time(database, LEASE_S + 1)
    await ledger.renew()
    assert await Ledger(database).reap() == 0, "the lease is renewed until the money is released"
    await ledger.close()
    assert await money(database, caller) == (0, 0)
    assert await line_count(database) == 0


@pytest.mark.parametrize("error", [STATE_UNAVAILABLE(), RowRefused(), KeyError("x")], ids=repr)
async def test_a_database_that_is_away_closes_the_door_and_loses_no_line(
    database: Database, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(retries, "RETRY_S", 0.001)
    away = WatchedDatabase(database)
    limited = await make_caller(database, 1000)
    free, other = await make_caller(database, org="free"), await make_caller(database, org="other")
    ledger = Ledger(away)
    holds = [await reserve(ledger, limited, 10), await reserve(ledger, free, 10)]
    away.fault = lambda _: error
    for hold in holds:
        assert await hold.settle(9, 1, "tokens") == 9
    if isinstance(error, ApiError):
        assert await fault_of(reserve(ledger, limited, 10)) == error.fault.name
    assert await fault_of(reserve(ledger, free, 10)) == "STATE_UNAVAILABLE"
    # Nothing of another organisation waits to be recorded.
    await reserve(ledger, other, 10)
    away.fault = lambda _: None

    async def both_recorded() -> bool:
        return await line_count(database) == 2

    await until(both_recorded)
    await ledger.close()
    assert await money(database, limited) == (9, 0)
    assert await money(database, free) == (9, 0)
    assert (await reserve(ledger, free, 10)).held_micro_eur == 0


async def test_bills_of_one_organisation_share_transactions(database: Database) -> None:
    counting = WatchedDatabase(database)
    caller, ledger = await make_caller(database, 1_000_000, 1_000_000), Ledger(counting)
    holds = [await reserve(ledger, caller, 10, f"r{n}") for n in range(250)]
    counting.ran = 0
    assert set(await asyncio.gather(*(hold.settle(7, 1, "tokens") for hold in holds))) == {7}
    # The first alone, then whoever came meanwhile, so many at a time.
    assert counting.ran <= 5
    await ledger.close()
    assert await money(database, caller) == (250 * 7, 0)
    assert await line_count(database) == 250


async def test_a_bill_that_cannot_be_written_does_not_stop_its_neighbours_and_is_logged_in_the_end(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retries, "RETRY_S", 1000.0)
    monkeypatch.setattr(ledger_module, "CLOSE_S", 0.1)

    events: list[str] = []

    def fault(transaction: Any) -> Exception | None:
        posted = [bill.entry.request_id for bill in getattr(transaction, "keywords", {}).get("bills", ())]
        events.append(f"post {' '.join(posted)}")
        return OURS if "poison" in posted else None

    async def settle(hold: Reservation) -> None:
        await hold.settle(5, 1, "tokens")
        events.append(f"told {hold.entry.request_id}")

    caller, ledger = await make_caller(database), Ledger(WatchedDatabase(database, fault))
    names = ["a", "b", "poison", *"cdef"]
    holds = [await reserve(ledger, caller, 1, n) for n in names]
    await asyncio.gather(*(settle(hold) for hold in holds))
    assert events.index("told a") < events.index("post f"), "nobody waits for the bills behind his own"
    assert await line_count(database) == len(names) - 1
    assert ledger.backlog == 1
    await ledger.close()
    assert caplog.text.count("the bill of request poison is left to another process") == 1
    await pass_time(database, LEASE_S + 1)
    assert await Ledger(database).reap() == 1
    assert await money(database, caller) == (5 * len(names), 0)


class StuckDatabase(WatchedDatabase):
    """A database whose transactions of some kinds end with an error after `late_s` seconds; None: they never end."""

    late_s: float | None = None
    stuck: frozenset[Any] = frozenset()

    async def run(self, transaction: Any, **how: Any) -> Any:
        if getattr(transaction, "func", None) in self.stuck:
            async with asyncio.timeout(self.late_s):
                await asyncio.Event().wait()
        return await super().run(transaction, **how)


@pytest.mark.parametrize("limit", [None, 60, 100_000], ids=["no row", "rows", "purse"])
@pytest.mark.parametrize("late_s", [0.08, None], ids=["fails", "hangs"])
async def test_no_bill_vanishes_when_the_process_closes(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limit: int | None,
    late_s: float | None,
) -> None:
    monkeypatch.setattr(ledger_module, "CLOSE_S", 0.1)
    caller, away, recorded = await make_caller(database, limit), StuckDatabase(database), 0
    for owes, count in product((True, False), (1, 2, 3)):
        caplog.clear()
        monkeypatch.setattr(ledger_module, "LEAVE_S", 60.0 if owes else 0.1)
        away.late_s = None
        away.stuck = frozenset()
        ledger = Ledger(away)
        holds = [await reserve(ledger, caller, 4, f"{owes}-{count}-{n}") for n in range(count)]
        away.late_s = late_s
        away.stuck = frozenset({postings.settle, *([] if owes else [upkeep.owe])})
        settling = [asyncio.create_task(hold.settle(4, 1, "tokens")) for hold in holds]
        await asyncio.sleep(0)
        await ledger.close()
        async with asyncio.timeout(5):
            assert await asyncio.gather(*settling) == [4] * count
        level = "ERROR" if owes else "CRITICAL"
        logged = [record.getMessage() for record in caplog.records if record.levelname == level]
        for hold in holds:
            ends = ("is left to another process", "is lost with this process")
            assert sum(hold.entry.request_id in text and ends[not owes] in text for text in logged) == 1
        await pass_time(database, LEASE_S + 1)
        await Ledger(database).reap()
        recorded += count * owes
        assert await money(database, caller) == (4 * recorded, 0), "another process has recorded what was left to it"
    assert await line_count(database) == recorded


async def test_a_batch_charges_each_bill_as_if_it_came_alone(database: Database) -> None:
    caller = await make_caller(database, 100, 60)
    entries = [Entry(f"id-{n}", caller.org_id, caller.user_id, "k", "r", "l", "m") for n in range(4)]
    # 60 is left to the user: 25 + 25 + 10, and nothing for the last.
    bills = [Bill(entry, Usage(25, 1, "tokens")) for entry in entries]
    assert await database.run(partial(postings.settle, bills=bills[:1])) == [25]
    for _ in range(2):  # a retried bill takes nothing from the others
        assert await database.run(partial(postings.settle, bills=bills)) == [25, 25, 10, 0]
    assert await money(database, caller) == (60, 0)


async def test_a_bill_that_its_purse_has_paid_frees_nothing_for_others_when_it_comes_again(database: Database) -> None:
    caller = await make_caller(database, 100, None)
    purse, first, other = (Entry(n, caller.org_id, caller.user_id, *"krlm") for n in ("p", "a", "b"))
    paid = Bill(first, Usage(20, 1, "tokens"), purse_id="p", covered_micro_eur=20)
    await database.run(partial(postings.reserve, entry=purse, amount=60))
    assert await database.run(partial(postings.settle, bills=[paid])) == [20]
    assert await database.run(partial(postings.settle, bills=[paid, Bill(other, Usage(999, 1, "tokens"))])) == [20, 40]
    assert await money(database, caller) == (60, 40), "what was spent, and what the purse holds, within the limit"


async def test_a_row_that_comes_after_the_line_of_its_request_is_released_by_the_next_retry(database: Database) -> None:
    caller = await make_caller(database, 100, 90)
    late, other = [Bill(Entry(n, caller.org_id, caller.user_id, *"krlm"), Usage(25, 1, "tokens")) for n in ("a", "b")]
    assert await database.run(partial(postings.settle, bills=[late])) == [25]
    await database.run(partial(postings.reserve, entry=late.entry, amount=10))
    assert await database.run(partial(postings.settle, bills=[late, other])) == [25, 25]
    assert await money(database, caller) == (50, 0)


@pytest.mark.parametrize("is_settled", [False, True])
@pytest.mark.usefixtures("marks_at_once")
async def test_who_needs_what_a_purse_has_free_waits_for_the_bills_that_it_pays(
    database: Database, is_settled: bool
) -> None:
    caller, late = await make_caller(database, 100_000), LateDatabase(database)
    ledger = Ledger(late)
    hold = await reserve(ledger, caller, 10)
    hold.note(5, 2, "tokens")
    marking = asyncio.create_task(ledger.mark())
    await until(lambda: hold.may_have_row)
    end = asyncio.create_task(hold.settle(7, 3, "tokens") if is_settled else hold.void())
    rest = asyncio.create_task(reserve(ledger, caller, 100_000 - 10))
    await until(lambda: ledger._purses._closing)
    await money(database, caller)
    late.may_write.set()
    await asyncio.gather(marking, end)
    assert (await rest).held_micro_eur == 100_000 - 10
    await ledger.close()


@pytest.mark.usefixtures("marks_at_once")
async def test_what_a_top_up_records_is_marked_last_and_once(database: Database) -> None:
    caller, late = await make_caller(database, 100), LateDatabase(database)
    ledger = Ledger(late)
    hold = await reserve(ledger, caller, 10)
    hold.note(5, 2, "tokens")
    marking = asyncio.create_task(ledger.mark())
    await late.is_asked.wait()
    hold.note(8, 3, "tokens")
    more = asyncio.create_task(hold.top_up(10))
    for _ in range(3):
        await money(database, caller)  # what does not wait for the mark would be done before this
    late.may_write.set()
    await asyncio.gather(marking, more)
    ran = late.ran
    await ledger.mark()
    assert late.ran == ran
    await pass_time(database, LEASE_S + 1)
    assert await Ledger(database).reap() == 1
    assert await money(database, caller) == (8, 0)


async def test_many_settles_of_one_organisation_refuse_nobody(postgres_url: str) -> None:
    async with opened(postgres_url, 1) as (database,):
        busy, other = await make_caller(database, org="busy"), await make_caller(database, org="other")
        ledger = Ledger(database)
        holds = [await reserve(ledger, busy, 10, f"r{n}") for n in range(2000)]
        await asyncio.gather(*(hold.settle(7, 1, "tokens") for hold in holds))
        assert not ledger.backlog
        for caller in (busy, other):
            await reserve(ledger, caller, 1)
        assert await money(database, busy) == (14_000, 0)
