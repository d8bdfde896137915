"""Few slots, many owners: who gets one, in which order, and that nobody who leaves keeps one."""

import asyncio
import math
import random
import threading
from collections.abc import Callable, Hashable

import pytest

from concurrency.fairness import FairQueue, OwnerCounter, QueueFull
from concurrency.semaphore import FairSemaphore
from tests.waiting import eventually, settled

pytestmark = pytest.mark.virtual  # what waits for ever fails at once


class Watched(OwnerCounter):
    """The slots of a semaphore that one thread uses: how often they were counted without its lock."""

    def __init__(self, semaphore: FairSemaphore) -> None:
        super().__init__()
        self._lock, self.counted, self.unlocked = semaphore._lock, 0, 0

    def take(self, owner: Hashable, amount: int = 1, limit: float = math.inf) -> bool:
        self.counted += 1
        self.unlocked += not self._lock.locked()
        return super().take(owner, amount, limit)


class Visitors:
    """Callers that stay until they are sent away."""

    def __init__(self, semaphore: FairSemaphore) -> None:
        self.semaphore = semaphore
        self.inside: list[str] = []
        self.order: list[str] = []
        self.sent: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str) -> None:
        """`a1` is the first of owner `a`. Returns once all are inside or wait."""
        for name in names:
            self.sent[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._stay(name))
        await settled()

    async def send(self, *names: str) -> None:
        for name in names:
            self.sent[name].set()
            await self.tasks[name]
            await settled()

    async def leave(self) -> None:
        """Takes everybody away."""
        for task in self.tasks.values():
            task.cancel()
        await settled()

    async def _stay(self, name: str) -> None:
        async with self.semaphore.of(name.rstrip("0123456789")):
            self.inside.append(name)
            self.order.append(name)
            await self.sent[name].wait()
            self.inside.remove(name)


async def test_places_are_few_and_owners_take_turns() -> None:
    visitors = Visitors(FairSemaphore(2, 8, 64))
    await visitors.come("a1", "a2", "a3")
    assert visitors.inside == ["a1"], "a place is free, for another owner"
    await visitors.come("b1", "b2", "c1")
    assert visitors.inside == ["a1", "b1"]
    await visitors.send("a1")
    assert visitors.inside == ["b1", "c1"]
    await visitors.send("b1")
    assert visitors.inside == ["c1", "a2"]
    await visitors.send("c1", "a2", "b2", "a3")
    assert visitors.order == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_without_an_owner_nobody_waits_for_each_other() -> None:
    visitors = Visitors(FairSemaphore(2, 1, 64))
    await visitors.come("1", "2", "3", "4", "5")
    assert visitors.inside == ["1", "2"]
    await visitors.send("2", "1", "3", "4", "5")
    assert visitors.order == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("most", "waiting", "comes", "message"),
    [
        (64, ("a2",), "a9", None),
        (64, ("a2", "a3"), "a9", None),
        (64, ("a2", "a3", "a4"), "a9", "of your organisation"),
        (64, ("a2", "a3", "a4"), "b1", None),
        (3, ("b1", "c1"), "e1", None),
        (3, ("b1", "c1", "d1"), "e1", r"^requests wait"),
    ],
)
async def test_few_of_an_owner_may_wait_and_few_of_all(
    most: int, waiting: tuple[str, ...], comes: str, message: str | None
) -> None:
    visitors = Visitors(FairSemaphore(1, 3, most))
    await visitors.come("a1", *waiting, comes)
    if message is None:
        assert visitors.semaphore.waiting == len(waiting) + 1
    else:
        with pytest.raises(QueueFull, match=message):
            await visitors.tasks.pop(comes)
    await visitors.leave()


@pytest.mark.parametrize(
    ("waiting", "comes", "goes"),
    [
        (("a2", "a3"), "c1", "a3"),  # a line of two for one of one
        (("a2", "b1"), "c1", None),  # every line is as long as the new one would be
        (("a2", "a3", "b1"), "b2", None),  # two for two
        (("a2", "a3", "a4"), "b1", "a4"),
        (("a2", "a3", "a4"), "a5", None),  # the longest line is its own
        (("b1", "a2", "a3", "a4"), "b2", "a4"),  # three for two
    ],
)
async def test_where_all_wait_that_may_the_last_of_the_longest_line_makes_room(
    waiting: tuple[str, ...], comes: str, goes: str | None
) -> None:
    visitors = Visitors(FairSemaphore(1, 8, len(waiting)))
    await visitors.come("a1", *waiting, comes)
    sent_away = [name for name, task in visitors.tasks.items() if task.done()]
    assert sent_away == [goes or comes]
    assert visitors.semaphore.waiting == len(waiting)
    with pytest.raises(QueueFull, match=r"^requests wait"):
        await visitors.tasks.pop(sent_away[0])
    await visitors.send("a1")
    assert len(visitors.inside) == 1  # no place was lost, and none was given twice
    await visitors.leave()
    assert (visitors.semaphore.free, visitors.semaphore.waiting) == (1, 0)


async def test_whatever_happens_no_place_is_lost() -> None:
    semaphore, seen = FairSemaphore(2, 4, 8), 0
    holders = semaphore._holders = Watched(semaphore)
    dice = random.Random(7)
    inside: set[int] = set()

    async def visit(number: int) -> None:
        nonlocal seen
        async with semaphore.of(dice.choice(["a", "b", "c", ""])):
            inside.add(number)
            seen = max(seen, len(inside))
            try:
                for _ in range(dice.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                inside.discard(number)

    tasks: list[asyncio.Task[None]] = []
    for number in range(2_000):
        tasks.append(asyncio.create_task(visit(number)))
        if dice.random() < 0.4:
            dice.choice(tasks[-5:]).cancel()
        if dice.random() < 0.5:
            await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} == {type(None), QueueFull, asyncio.CancelledError}
    assert seen == 2
    assert semaphore.waiting == 0
    async with semaphore.of("a"), semaphore.of("b"):
        assert semaphore.free == 0
    assert (semaphore.free, holders, semaphore.waiting) == (2, {}, 0)
    with semaphore.blocking("a"):
        pass
    assert holders.counted > 1000
    assert holders.unlocked == 0, "other threads and loops count the same slots"


async def test_an_owner_may_have_several_places_but_never_all() -> None:
    visitors = Visitors(FairSemaphore(3, each=2))
    await visitors.come("a1", "a2", "a3")
    assert visitors.inside == ["a1", "a2"]
    await visitors.come("b1", "b2")
    assert visitors.inside == ["a1", "a2", "b1"]
    await visitors.send("a1")
    assert visitors.inside == ["a2", "b1", "b2"]
    await visitors.send("b1", "a2", "b2", "a3")
    assert visitors.inside == []


def test_threads_wait_where_they_are() -> None:
    semaphore, inside = FairSemaphore(1), threading.Semaphore(0)

    def visit() -> None:
        with semaphore.blocking("a"):
            inside.release()

    with semaphore.blocking("a"):
        thread = threading.Thread(target=visit, daemon=True)
        thread.start()
        eventually(lambda: semaphore.waiting)
        assert not inside.acquire(blocking=False)
    thread.join(60)
    assert inside.acquire(blocking=False)
    with pytest.raises(ZeroDivisionError), semaphore.blocking("a"):
        raise ZeroDivisionError
    with semaphore.blocking("b"):
        pass


def test_a_thread_is_sent_away_as_well() -> None:
    semaphore, sent_away = FairSemaphore(1, 8, 2), threading.Event()

    def visit() -> None:
        with pytest.raises(QueueFull), semaphore.blocking("a"):
            raise AssertionError
        sent_away.set()

    with semaphore.blocking("a"):
        first = semaphore._request("a")
        thread = threading.Thread(target=visit, daemon=True)
        thread.start()
        eventually(lambda: semaphore.waiting == 2)
        other = semaphore._request("b")
        assert sent_away.wait(10)
        assert (first.done(), other.done(), semaphore.waiting) == (False, False, 2)
    thread.join(60)


def test_callers_of_two_event_loops_share_the_places() -> None:
    semaphore, inside, most = FairSemaphore(1, 64, 128), 0, 0
    lock = threading.Lock()

    async def visit(owner: str) -> None:
        nonlocal inside, most
        async with semaphore.of(owner):
            with lock:
                inside += 1
                most = max(most, inside)
            await asyncio.sleep(0)
            with lock:
                inside -= 1

    async def many(owner: str) -> None:
        await asyncio.gather(*(visit(owner) for _ in range(50)))

    def loop_of(owner: str) -> Callable[[], None]:
        return lambda: asyncio.run(many(owner))

    threads = [threading.Thread(target=loop_of(owner), daemon=True) for owner in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert (most, inside, semaphore.waiting) == (1, 0, 0)


def test_the_owner_that_is_served_least_is_next_although_another_had_its_turn_before() -> None:
    queue, served = FairQueue[str](), OwnerCounter()
    for owner in "abab":
        queue.add(owner, owner)
    assert [queue.pop(owner) for owner in "ab"] == ["a", "b"]
    assert queue.next(served, lambda owner: True) == "a"
    served.take("a")
    assert queue.next(served, lambda owner: True) == "b"
