"""Turns at a busy engine, of calls that wait and of decisions alone."""

import asyncio
from collections import Counter, deque
from dataclasses import replace
from itertools import count

import pytest

from autoscaling.engine import NOBODY
from autoscaling.queue import SlotQueue
from autoscaling.slots import PRESENT_S, Slot, SlotScheduler
from autoscaling.turns import Newcomer, rates, turns
from tests.waiting import ManualClock, cancelled, settled


async def ready() -> None:
    """An engine that runs."""


async def come(room: SlotQueue, organisation: int, count: int = 1) -> list[asyncio.Task[Slot]]:
    tasks = [asyncio.create_task(room.enter(organisation, ready, 60)) for _ in range(count)]
    await settled()
    return tasks


def outcomes(tasks: list[asyncio.Task[Slot]]) -> Counter[str]:
    def one(task: asyncio.Task[Slot]) -> str:
        if not task.done():
            return "waits"
        return type(task.exception()).__name__ if task.exception() else "works"

    return Counter(map(one, tasks))


async def test_full_queue_takes_from_the_longest() -> None:
    room = SlotQueue(lambda: 1, 4, reserves=False)
    crowd, others = await come(room, 1, 5), await come(room, 2, 2)
    assert outcomes(crowd) == {"works": 1, "waits": 2, "QueueFull": 2}
    assert outcomes(crowd[-2:]) == {"QueueFull": 2}, "the last that came"
    assert outcomes(others) == {"waits": 2}
    assert outcomes(await come(room, 2)) == {"QueueFull": 1}, "it has as many as the first one"
    assert room.waiting == 4
    await cancelled(*crowd, *others)


@pytest.mark.parametrize("comes_first", ["the eviction", "the cancellation"])
async def test_a_call_that_is_cancelled_as_it_is_evicted_is_cancelled(comes_first: str) -> None:
    room = SlotQueue(lambda: 1, 2, reserves=False)
    worker, other, victim = await come(room, 1, 3)
    evictor = asyncio.create_task(room.enter(2, ready, 60))
    if comes_first == "the eviction":
        await asyncio.sleep(0)
    await cancelled(victim)
    assert victim.cancelled(), outcomes([victim])
    await cancelled(other, evictor)
    room.leave(await worker)
    assert (room.waiting, room.at_work) == (0, 0)


async def test_organisations_take_turns() -> None:
    room, order = SlotQueue(lambda: 1, 100, reserves=False), []
    first = await room.enter(9, ready, 60)

    async def work(organisation: int) -> None:
        slot = await room.enter(organisation, ready, 60)
        order.append(organisation)
        room.leave(slot)

    tasks = [asyncio.create_task(work(organisation)) for organisation in (1, 1, 1, 1, 2, 2, 3)]
    await settled()
    room.leave(first)
    await asyncio.gather(*tasks)
    assert order == [1, 2, 3, 1, 2, 1, 1]


async def test_new_places_are_taken_though_no_call_ended() -> None:
    places = 1
    room = SlotQueue(lambda: places, 100)
    tasks = await come(room, 1, 3)
    assert outcomes(tasks) == {"works": 1, "waits": 2}
    places = 3
    await asyncio.wait_for(asyncio.gather(*tasks), 10)


async def test_engine_without_a_replica_gets_one_call_which_wakes_it() -> None:
    tasks = await come(SlotQueue(lambda: 0, 100), 1, 2)
    assert outcomes(tasks) == {"works": 1, "waits": 1}
    await cancelled(*tasks)


@pytest.mark.virtual
async def test_the_time_for_a_turn_begins_once_the_engine_runs() -> None:
    room = SlotQueue(lambda: 1, 100)
    first, *others = (asyncio.create_task(room.enter(1, lambda: asyncio.sleep(10), 5)) for _ in range(3))
    await asyncio.sleep(14)
    assert outcomes(others) == {"waits": 2}
    room.leave(first.result())
    await asyncio.sleep(2)
    assert outcomes(others) == {"works": 1, "QueueTimeout": 1}


async def test_call_that_is_cancelled_as_its_turn_comes_gives_the_place_back() -> None:
    room = SlotQueue(lambda: 1, 100)
    (working,) = await come(room, 1)
    first, second = await come(room, 1, 2)
    room.leave(working.result())
    await cancelled(first)
    await asyncio.wait_for(second, 10)
    assert room.at_work == 1


def filled(room: SlotScheduler[object], owner: str) -> list[Slot]:
    slots = []
    while slot := room.try_enter(owner):
        slots.append(slot)
    return slots


SHARES = {1: {1: 1, 2: 1, 4: 3, 8: 6, 16: 12, 64: 48}, 2: {4: 1, 5: 2, 6: 2, 7: 3, 9: 4, 64: 24, 65: 25}, 3: {64: 17}}
"""Slots for a flood, by processes and slots: its share, rounded up, without a quarter that is reserved."""


def test_a_quarter_of_a_share_is_reserved_for_organisations_that_hold_few() -> None:
    for processes, shares in SHARES.items():
        for slots, for_one in shares.items():
            room = SlotScheduler[object](lambda slots=slots: slots, 10, ManualClock(), sharers=lambda n=processes: n)
            visit = room.try_enter("other")
            assert visit
            room.release(visit)
            assert len(filled(room, "flood")) == for_one, (slots, processes)
            assert processes > 1 or len(filled(room, "other")) == slots - for_one, "it may have what is reserved"


@pytest.mark.parametrize(("owner", "lasted_s"), [("other", 0.0), ("other", 60.0), ("other", 600.0), (NOBODY, 0.0)])
def test_an_organisation_is_present_until_a_minute_after_its_call(owner: str, lasted_s: float) -> None:
    for ago_s in (0.0, 59.9, 60.0, 60.1, 120.0):
        clock = ManualClock()
        room = SlotScheduler[object](lambda: 4, 10, clock)
        visit = room.try_enter(owner)
        assert visit
        assert room.line(4).rates.keys() == {owner}, "calls that need not wait come, too"
        clock.now_s += lasted_s
        room.release(visit)
        clock.now_s += ago_s
        assert len(filled(room, "flood")) == (3 if owner != NOBODY and ago_s <= 60 else 4), ago_s


def test_the_oldest_call_that_is_remembered_counts_in_the_rates() -> None:
    came = deque([("forgotten", 0.0), ("first", 10.0), ("last", 12.0)], maxlen=2)
    assert rates(came, 60, 14.0) == {"first": 0.25, "last": 0.25}


def test_a_forecast_of_a_long_queue_before_many_organisations_takes_few_rounds() -> None:
    clock, waiting, rounds = ManualClock(), 250, count()
    room = SlotScheduler[object](lambda: 16, waiting, clock)
    for number in range(1000):
        clock.now_s += PRESENT_S / 1000
        if visit := room.try_enter(f"org-{number % 99}"):
            room.release(visit)
    filled(room, "flood")
    for number in range(waiting):
        room.join("flood", Newcomer(number))
    line = room.line(16)
    order = turns(replace(line, admission=lambda at_work: (next(rounds), line.admission(at_work))[1]), 20.0)
    assert [grant.watch for grant in order] == [*range(waiting)]
    assert order[20].after > 2 * 20, "others come, and pass those that wait longer"
    assert next(rounds) < 10 * waiting
