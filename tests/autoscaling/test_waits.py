"""Places and promises of calls that wait: by the production queue, on a virtual clock."""

import asyncio
import random
import statistics
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaling.durations import Durations
from autoscaling.engine import CallContext, Timings, owner_name
from autoscaling.queue import SlotQueue
from autoscaling.slots import Slot
from autoscaling.turns import Grant, begins, turns
from autoscaling.waits import Wait, WaitWatch
from contract.errors import ApiError
from tests.autoscaling.replicas import Job, Some
from tests.autoscaling.world import World, world
from tests.waiting import cancelled, run, settled

SERVICE_S, START_S = 2.0, 8.0


class Room:
    """A queue in which each call has a number, and is at work until it is told to leave."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.queue = SlotQueue(lambda: slots, 1000, asyncio.get_running_loop().time)
        self.working: list[Slot] = []
        self.begun: list[int] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.count = 0

    async def come(self, owner: str) -> None:
        self.count += 1
        self.tasks.add(asyncio.create_task(self._call(owner, self.count)))
        await settled()

    async def leave(self, place: int = 0) -> None:
        if self.working:
            self.queue.leave(self.working.pop(place % len(self.working)))
            await settled()

    def places(self, *, with_arrivals: bool = False) -> dict[object, int]:
        line = self.queue.line(self.slots)
        service_s = 1.0 if with_arrivals else 0.0
        return {grant.watch: place for place, grant in enumerate(turns(line, service_s), 1)}

    async def end(self) -> None:
        await cancelled(*self.tasks)

    async def _call(self, owner: str, number: int) -> None:
        async def ready() -> None:
            """The engine runs."""

        slot = self.queue.try_enter(owner) or await self.queue.enter(owner, ready, 10_000, watch=number)
        self.begun.append(number)
        self.working.append(slot)


def in_order(places: dict[object, int]) -> list[object]:
    return sorted(places, key=places.__getitem__)


OWNERS = st.sampled_from(["org-1", "org-2", "org-3"])
STEPS = st.lists(st.one_of(OWNERS, st.integers(0, 7)), min_size=5, max_size=60)


@given(STEPS, st.integers(1, 6))
def test_a_place_gets_worse_only_by_others_who_come_or_have_ended(steps: list[str | int], slots: int) -> None:
    """One who comes may go before, once; so may one more of an organisation of which one has ended just now."""

    async def play() -> None:
        room = Room(slots)
        for step in steps:
            before = room.places()
            await (room.come(step) if isinstance(step, str) else room.leave(step))
            after = room.places()
            assert all(after[name] <= place + 1 for name, place in before.items() if name in after), step
            assert sorted(after.values()) == list(range(1, len(after) + 1))
            if isinstance(step, str):  # who comes may go before others, and changes nothing among them
                assert [name for name in in_order(after) if name in before] == in_order(before), step
        await room.end()

    run(play())


@given(st.lists(OWNERS, min_size=1, max_size=40), st.integers(1, 6))
def test_calls_begin_in_the_order_of_their_places_and_those_who_are_expected_have_none(
    owners: list[str], slots: int
) -> None:
    """The oldest ends first, and no other comes."""

    async def play() -> None:
        room = Room(slots)
        for owner in owners:
            await room.come(owner)
        order = in_order(room.places())
        assert room.places(with_arrivals=True).keys() == {*order}
        begun = len(room.begun)
        while room.working:
            await room.leave()
        assert room.begun[begun:] == order
        await room.end()

    run(play())


def always(seconds: float) -> Durations:
    durations = Durations(200)
    for _ in range(200):
        durations.add(seconds)
    return durations


def test_times_follow_from_who_ends_before() -> None:
    order = [Grant(None, after) for after in (1, 2, 3, 4)]
    times = begins(order, [1.0, 0.0], Durations(1), always(2.0), None, random.Random(1))
    middle = [statistics.median(seconds) for seconds in times]
    assert middle == pytest.approx([1.0, 2.0, 3.0, 4.0], rel=0.15)


def test_a_start_comes_before_everything_and_an_answer_begins_a_little_later() -> None:
    order = [Grant(None, 0), Grant(None, 1)]
    times = begins(order, [], always(0.5), always(2.0), lambda share: 10.0, random.Random(1))
    assert [statistics.median(seconds) for seconds in times] == pytest.approx([10.5, 12.5], rel=0.05)


def test_nobody_knows_how_long_it_takes_before_anything_has_ended() -> None:
    times = begins(
        [Grant(None, 0), Grant(None, 1)], [], Durations(1), Durations(1), lambda share: 10.0, random.Random(1)
    )
    assert times[0][0] == 10.0, "who has a slot after the start knows that much"
    assert times[1] == []


@pytest.mark.parametrize(
    ("now", "is_news"),
    [
        (Wait(2, 5, 4.6, 9.0, "queue"), False),
        (Wait(2, 5, 5.6, 9.0, "queue"), True),
        (Wait(2, 5, 5.0, 12.0, "queue"), True),
        (Wait(1, 5, 5.0, 9.0, "queue"), True),
        (Wait(2, 6, 5.0, 9.0, "queue"), True),
        (Wait(2, 5, 5.0, 9.0, "both"), True),
        (Wait(2, 5, None, None, "queue"), True),
    ],
)
def test_what_has_not_changed_is_no_news(now: Wait, is_news: bool) -> None:
    assert Wait(2, 5, 6.0, 10.0, "queue").after(1.0).differs(now) is is_news


LOOK_S = 2.0
"""Between two looks of one who waits."""


@dataclass(frozen=True)
class Promise:
    """A promise made at `at_s`, and when the work began."""

    at_s: float
    wait: Wait
    began_s: float

    @property
    def came_s(self) -> float:
        return self.began_s - self.at_s


class Crowd:
    """Clients of one gate before an engine."""

    def __init__(self, at: World, service_s: Callable[[], float]) -> None:
        self.world, self.service_s, self.gate = at, service_s, at.gate
        self.promises: list[Promise] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def sleep(self) -> None:
        """The replica has gone, and nothing is known of the time before."""
        self.world.target = 0
        self.world.policy.memories.clear()
        self.world.running.clear()
        self.world.tell()

    def come(self, organisation: int, count: int = 1) -> None:
        for _ in range(count):
            task = asyncio.create_task(self._call(owner_name(organisation)))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    @property
    def mean_s(self) -> float:
        return statistics.fmean(self.service_s() for _ in range(100))

    async def all_ended(self) -> None:
        while self.tasks:
            await asyncio.wait(self.tasks)

    async def _call(self, owner: str) -> None:
        loop = asyncio.get_running_loop()
        watch = WaitWatch(owner)
        looks: list[tuple[float, Wait]] = []
        looking = asyncio.create_task(self._look(watch, looks))
        began_s: list[float] = []

        def begin() -> None:
            watch.answered()
            began_s.append(loop.time())

        job = Job((self.service_s(),), begun=begin)
        with suppress(ApiError):
            await self.gate.call(Some.answer, job, context=CallContext(owner, Timings(watch=watch)))
        looking.cancel()
        if began_s:
            self.promises += [Promise(at_s, wait, began_s[0]) for at_s, wait in looks]

    async def _look(self, watch: WaitWatch, looks: list[tuple[float, Wait]]) -> None:
        loop = asyncio.get_running_loop()
        await watch.begun
        while True:
            if wait := watch.look():
                looks.append((loop.time(), wait))
            await asyncio.sleep(LOOK_S if wait else 0.1)


def kept(promises: list[Promise]) -> float:
    known = [(one.came_s, one.wait.p90_s) for one in promises if one.wait.p90_s is not None]
    return sum(came_s <= p90_s for came_s, p90_s in known) / len(known)


def errors(promises: list[Promise]) -> list[float]:
    """Errors of the middle estimate, as a share of the wait, of waits longer than a second; ascending."""
    return sorted(
        abs(one.came_s - one.wait.eta_s) / one.came_s
        for one in promises
        if one.wait.eta_s is not None and one.came_s > 1
    )


def lognormal(draw: random.Random, median_s: float, sigma: float) -> Callable[[], float]:
    return lambda: median_s * draw.lognormvariate(0, sigma)


PATIENT: dict[str, Any] = {"max_queued": 1000, "deadline_s": 10_000, "wait_s": 10_000, "idle_s": 3600}

Scene = Callable[[Crowd, random.Random], Awaitable[None]]


async def a_cold_start(crowd: Crowd, draw: random.Random) -> None:
    crowd.sleep()
    crowd.come(1, 20)
    await asyncio.sleep(3)
    crowd.come(2, 5)


async def bursts(crowd: Crowd, draw: random.Random) -> None:
    for _ in range(6):
        crowd.come(1, draw.randint(5, 30))
        await asyncio.sleep(draw.uniform(5, 40))


async def three_organisations_almost_too_much(crowd: Crowd, draw: random.Random) -> None:
    for _ in range(150):
        crowd.come(draw.choice((1, 2, 3)))
        await asyncio.sleep(draw.expovariate(1.0) * crowd.mean_s / crowd.world.serving.max_ongoing_requests / 0.95)


async def a_flood_of_another(crowd: Crowd, draw: random.Random) -> None:
    crowd.come(2)
    await asyncio.sleep(1)
    crowd.come(1, 60)
    for _ in range(10):
        await asyncio.sleep(draw.uniform(2, 6))
        crowd.come(2, draw.choice((1, 1, 3)))


async def a_death(crowd: Crowd, draw: random.Random) -> None:
    crowd.come(1, 20)
    crowd.come(2, 5)
    await asyncio.sleep(5)
    crowd.world.die(next(iter(crowd.world.running)))
    await asyncio.sleep(1)
    crowd.come(2, 5)


SCENES: tuple[Scene, ...] = (a_cold_start, bursts, three_organisations_almost_too_much, a_flood_of_another, a_death)


async def story(seed: int, slots: int, sigma: float) -> list[Promise]:
    draw = random.Random(seed)
    with world(seed, slots=slots, load_s=lognormal(draw, START_S, 0.2), **PATIENT) as at:
        people = Crowd(at, lognormal(draw, SERVICE_S, sigma))
        for scene in SCENES:
            await scene(people, draw)
            await people.all_ended()
    return people.promises


@pytest.mark.parametrize(("slots", "sigma"), [(4, 0.2), (4, 0.5), (16, 0.5)])
def test_nine_answers_in_ten_begin_when_they_were_promised_to(slots: int, sigma: float) -> None:
    """The middle of three stories: in a single one a long cold start may decide."""
    stories = [run(story(seed, slots, sigma)) for seed in (1, 2, 3)]
    assert min(map(len, stories)) > 500
    assert 0.85 <= statistics.median(map(kept, stories)) <= 0.95
    assert statistics.median(statistics.median(errors(promises)) for promises in stories) <= 0.25


@pytest.mark.virtual
async def test_the_first_promises_of_a_gate_that_knows_nothing_name_a_place_only() -> None:
    with world(**PATIENT) as at:
        people = Crowd(at, lambda: 5.0)
        at.run_replica()
        await asyncio.sleep(0.01)
        people.come(1, 2)
        await people.all_ended()
    assert people.promises[0].wait == Wait(1, 1, None, None, "queue")
