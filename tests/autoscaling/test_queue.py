"""Turns at a busy engine, of calls that wait and of decisions alone."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from autoscaling.engine import NOBODY
from autoscaling.queue import QueueTimeout, SlotQueue
from autoscaling.slots import PRESENT_S, Slot, SlotScheduler
from tests.waiting import ManualClock, settled


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


async def end(*tasks: asyncio.Task[Slot]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.parametrize(("count", "full"), [(4, 0), (5, 0), (6, 0), (7, 1)])
async def test_one_organisation_alone_may_fill_every_place_and_the_whole_queue(count: int, full: int) -> None:
    tasks = await come(SlotQueue(lambda: 4, 2), 1, count)
    assert outcomes(tasks) == Counter(works=4, waits=count - 4 - full, QueueFull=full)
    await end(*tasks)


async def test_full_queue_takes_from_the_longest() -> None:
    room = SlotQueue(lambda: 1, 4, reserves=False)
    crowd, others = await come(room, 1, 5), await come(room, 2, 2)
    assert outcomes(crowd) == {"works": 1, "waits": 2, "QueueFull": 2}
    assert outcomes(crowd[-2:]) == {"QueueFull": 2}, "the last that came"
    assert outcomes(others) == {"waits": 2}
    assert outcomes(await come(room, 2)) == {"QueueFull": 1}, "it has as many as the first one"
    assert room.waiting == 4
    await end(*crowd, *others)


@pytest.mark.parametrize("comes_first", ["the eviction", "the cancellation"])
async def test_a_call_that_is_cancelled_as_it_is_evicted_is_cancelled(comes_first: str) -> None:
    room = SlotQueue(lambda: 1, 2, reserves=False)
    worker, other, victim = await come(room, 1, 3)
    evictor = asyncio.create_task(room.enter(2, ready, 60))
    if comes_first == "the eviction":
        await asyncio.sleep(0)
    victim.cancel()
    await asyncio.wait([victim])
    assert victim.cancelled(), outcomes([victim])
    await end(other, evictor)
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


async def test_who_has_least_at_work_is_next() -> None:
    room = SlotQueue(lambda: 3, 100, reserves=False)
    working = await come(room, 1, 2)
    await come(room, 2)
    first, second = (await come(room, 1))[0], (await come(room, 2))[0]
    for call in working:
        room.leave(call.result())
    await settled()
    assert first.done()
    assert second.done()


@pytest.mark.parametrize(("places", "kept"), [(1, 0), (2, 1), (4, 1), (8, 2), (16, 4), (64, 16)])
async def test_one_place_in_four_is_kept_for_organisations_that_hold_few(places: int, kept: int) -> None:
    room = SlotQueue(lambda: places, 1000)
    (short,) = await come(room, 2)
    assert short.done()
    room.leave(short.result())
    crowd = await come(room, 1, places + 1)
    assert outcomes(crowd) == Counter(works=places - kept, waits=kept + 1)
    others = await come(room, 2, kept + 1)
    assert outcomes(others) == Counter(works=kept, waits=1)
    await end(*crowd, *others)


async def test_no_place_is_kept_where_nobody_else_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    room = SlotQueue(lambda: 4, 1000)
    for organisation in (NOBODY, 2):
        (call,) = await come(room, organisation)
        room.leave(call.result())
    monkeypatch.setattr("autoscaling.slots.PRESENT_S", 0.0)  # long ago now
    assert outcomes(await come(room, 1, 4)) == {"works": 4}


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
    await end(*tasks)


async def test_turn_that_does_not_come_in_time_is_late_and_leaves_nothing() -> None:
    room = SlotQueue(lambda: 1, 100)
    (working,) = await come(room, 1)
    with pytest.raises(QueueTimeout):
        await room.enter(2, ready, 0.01)
    assert (room.waiting, room.at_work) == (0, 1)
    room.leave(working.result())
    assert room.at_work == 0


async def test_call_that_is_cancelled_as_its_turn_comes_gives_the_place_back() -> None:
    room = SlotQueue(lambda: 1, 100)
    (working,) = await come(room, 1)
    first, second = await come(room, 1, 2)
    room.leave(working.result())
    first.cancel()
    await asyncio.wait({first})
    await asyncio.wait_for(second, 10)
    assert room.at_work == 1


async def test_what_goes_wrong_while_an_engine_starts_leaves_nothing() -> None:
    room, starting = SlotQueue(lambda: 1, 1, reserves=False), asyncio.Event()

    async def until_started() -> None:
        await starting.wait()
        raise ZeroDivisionError

    tasks = [asyncio.create_task(room.enter(1, until_started, 60)) for _ in range(3)]
    await settled()
    assert outcomes(tasks) == {"waits": 2, "QueueFull": 1}, "the queue is bounded while it starts, too"
    starting.set()
    await asyncio.wait(tasks)
    assert outcomes(tasks) == {"ZeroDivisionError": 2, "QueueFull": 1}
    assert (room.waiting, room.at_work) == (0, 0)


def filled(room: SlotScheduler[object], owner: str) -> list[Slot]:
    slots = []
    while slot := room.try_enter(owner):
        slots.append(slot)
    return slots


@pytest.mark.parametrize(
    ("slots", "processes", "for_one"),
    [
        *((4, 1, 3), (4, 2, 1), (5, 2, 2), (6, 2, 2), (7, 2, 3), (9, 2, 4)),
        *((64, 1, 48), (64, 2, 24), (64, 3, 17), (65, 2, 25)),
    ],
)
def test_a_share_that_does_not_divide_evenly_is_rounded_up(slots: int, processes: int, for_one: int) -> None:
    room = SlotScheduler[object](lambda: slots, 10, ManualClock(), sharers=lambda: processes)
    visit = room.try_enter("other")
    assert visit
    room.release(visit)
    assert len(filled(room, "flood")) == for_one, "its share of the slots, without those that are reserved"


@pytest.mark.parametrize(
    ("ago_s", "for_one"), [(0.0, 3), (PRESENT_S - 0.1, 3), (PRESENT_S, 3), (PRESENT_S + 0.1, 4), (2 * PRESENT_S, 4)]
)
@pytest.mark.parametrize("lasted_s", [0.0, PRESENT_S, 10 * PRESENT_S])
def test_an_organisation_is_present_until_a_minute_after_its_call(lasted_s: float, ago_s: float, for_one: int) -> None:
    clock = ManualClock()
    room = SlotScheduler[object](lambda: 4, 10, clock)
    visit = room.try_enter("other")
    assert visit
    assert room.line(4).rates.keys() == {"other"}, "calls that need not wait come, too"
    clock.now_s += lasted_s
    room.release(visit)
    clock.now_s += ago_s
    assert len(filled(room, "flood")) == for_one
