"""The engine as a whole, with seeds: whatever fails, requests end as they may, and in the end all is well.

    safety      replicas load, die, hang and fail to start, ingress processes hear of it late, and five kinds of clients
    liveness    all is healed: everything ends, nothing is held, every slot works, and the engine is idle in the end

`HISTORY_SEED=7 HISTORIES=1` plays one of them.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest

from autoscaling.engine import CallContext, Timings, owner_name
from autoscaling.slots import PRESENT_S
from autoscaling.waits import WaitWatch
from contract.errors import BUSY, ApiError
from contract.limits import COLD_RETRY_AFTER_MAX_S
from tests.autoscaling.replicas import Job, Some
from tests.autoscaling.world import World, world
from tests.state.books import seeds
from tests.waiting import cancelled

pytestmark = pytest.mark.virtual

FAULTS_S = 120.0
FINAL = ("ENGINE_FAILED", "UPSTREAM_ERROR", "UPSTREAM_TIMEOUT")
MAY_RETRY = {"BUSY": True, "WARMING_UP": True} | dict.fromkeys(FINAL, False)
"""Errors that a request may end with, and whether they say when to come again."""

HEALTHY, FLOOD = 9, 8


class Clients:
    """Clients of one world. Each request is checked by what its client could expect."""

    def __init__(self, at: World) -> None:
        self.world, self.draw = at, at.draw
        self.tasks: dict[asyncio.Task[None], None] = {}
        self.ends: Counter[str] = Counter()
        self.is_open = True

    def live(self, kind: Callable[[Clients, int], Awaitable[None]], organisation: int) -> None:
        async def life() -> None:
            while self.is_open:
                await kind(self, organisation)
                await asyncio.sleep(self.draw.uniform(0.1, 6))

        self.tasks[asyncio.create_task(life())] = None

    async def ask(
        self, organisation: int, *steps_s: float, ingress: int | None = None, pause_s: float = 0.0
    ) -> ApiError | None:
        """One request; a stream where its reader pauses after each item."""
        at, serving = self.world, self.world.serving
        number, gate = next(at.numbers), self.draw.choice(at.ingresses) if ingress is None else at.ingresses[ingress]
        watch = WaitWatch(owner_name(organisation))
        context = CallContext(watch.owner, Timings(watch=watch))
        began_s, items, error, end = time.monotonic(), 0, None, "left"
        looking = asyncio.create_task(self._look(watch))
        at.note(f"{number} of {organisation} comes to {gate.router.app_name}")
        try:
            if pause_s:
                async with aclosing(gate.gate.stream(Some.items, Job(steps_s), context=context)) as stream:
                    async for item in stream:
                        assert item == f"item {items}"
                        items += 1
                        await asyncio.sleep(pause_s)
            else:
                answer = await gate.gate.call(Some.answer, Job(steps_s), context=context)
                assert answer == f"item {len(steps_s) - 1}"
            end = "answered"
        except ApiError as failed:
            error, end = failed, failed.fault.name
        finally:
            looking.cancel()
            took_s = time.monotonic() - began_s
            at.note(f"{number} {end} after {took_s:.3f} s")
            self.ends[end] += 1
        items_s = len(steps_s) * (pause_s + serving.deadline_s) if pause_s else 0.0
        assert took_s <= serving.wait_s + serving.deadline_s + items_s + 0.01, "it took longer than it may"
        assert error or not pause_s or items == len(steps_s)
        if error:
            assert error.fault.name in MAY_RETRY
            assert (error.retry_after_s is not None) == MAY_RETRY[error.fault.name], error.fault.name
            assert 1 <= (error.retry_after_s or 1) <= COLD_RETRY_AFTER_MAX_S
        return error

    async def _look(self, watch: WaitWatch) -> None:
        while True:
            if wait := watch.look():
                assert 1 <= wait.position <= wait.of
                assert wait.p90_s is None or 0 <= (wait.eta_s or 0) <= wait.p90_s
            await asyncio.sleep(3.0)


async def ordinary(clients: Clients, organisation: int) -> None:
    await clients.ask(organisation, clients.draw.lognormvariate(0, 1))


async def impatient(clients: Clients, organisation: int) -> None:
    asked = asyncio.create_task(clients.ask(organisation, clients.draw.expovariate(0.3)))
    await asyncio.wait({asked}, timeout=clients.draw.uniform(0, 4))
    await cancelled(asked)
    assert asked.cancelled() or not asked.exception(), asked.exception()


async def greedy(clients: Clients, organisation: int) -> None:
    count = clients.draw.randrange(5, 30)
    await asyncio.gather(*(clients.ask(organisation, clients.draw.expovariate(0.5)) for _ in range(count)))


async def slow_reader(clients: Clients, organisation: int) -> None:
    steps_s = [clients.draw.uniform(0, 1) for _ in range(clients.draw.randrange(1, 6))]
    await clients.ask(organisation, *steps_s, pause_s=clients.draw.uniform(0.1, 8))


async def returning(clients: Clients, organisation: int) -> None:
    while (error := await clients.ask(organisation, 0.5)) and error.retry_after_s is not None:  # noqa: ASYNC110
        await asyncio.sleep(error.retry_after_s)


KINDS = (ordinary, impatient, greedy, slow_reader, returning)


async def faults(at: World, until_s: float) -> None:
    """One after the other: deaths, a replica that hangs, starts that fail, no controller; and news that comes late."""
    draw, later = at.draw, asyncio.get_running_loop().call_later
    while time.monotonic() < until_s:
        await asyncio.sleep(draw.expovariate(0.15))
        longest_s = draw.choice((0, 1, 10))
        at.late_s = partial(draw.uniform, 0, longest_s)
        victims = [*at.running]
        match draw.randrange(5):
            case 0 if victims:
                at.die(draw.choice(victims))
            case 1:
                for victim in victims:
                    at.die(victim)
            case 2 if victims:
                victim = draw.choice(victims)
                at.note(f"{victim.replica_id.unique_id} hangs")
                victim.goes_on.clear()
                later(draw.uniform(0, 20), draw.choice((victim.goes_on.set, victim.die)))
            case 3:
                at.fails = True
                later(draw.uniform(0, 20), setattr, at, "fails", False)
            case 4:
                at.is_away = True
                later(draw.uniform(0, 20), setattr, at, "is_away", False)


def drawn(draw: random.Random) -> dict[str, Any]:
    return {
        "ingresses": draw.randint(1, 3),
        "slots": draw.choice((1, 2, 4, 16)),
        "most": draw.randint(1, 3),
        "load_s": lambda: draw.uniform(0.5, 10),
        "when_cold": draw.choice(("wait", "wait", "refuse")),
        "when_busy": draw.choice(("queue", "queue", "refuse")),
        "max_queued": draw.choice((1, 10, 100)),
        "deadline_s": draw.choice((5, 40, 100)),
        "wait_s": draw.choice((2, 15, 240)),
        "idle_s": 30,
    }


@pytest.mark.parametrize("seed", seeds(8))
async def test_whatever_fails_requests_end_as_they_may_and_in_the_end_all_is_well(seed: int) -> None:
    with world(seed, **drawn(random.Random(seed))) as at:
        clients = Clients(at)
        for number in range(2 * len(KINDS)):
            clients.live(KINDS[number % len(KINDS)], 1 + number % 4)
        breaking = asyncio.create_task(faults(at, FAULTS_S))
        await asyncio.wait({breaking, *clients.tasks}, return_when=asyncio.FIRST_COMPLETED)
        clients.is_open = False
        at.heal()
        _, late = await asyncio.wait({breaking, *clients.tasks}, timeout=10 * (at.serving.wait_s + 110))
        assert not late, "some never end"
        await asyncio.gather(breaking, *clients.tasks)
        await until_census_is_empty(at)
        await all_slots_work(at, clients)
        if at.serving.when_busy == "queue" and len(at.running) * at.serving.max_ongoing_requests >= 4:
            await nobody_waits_for_a_flood(at, clients, FLOOD)
        await until_census_is_empty(at)
        await asyncio.sleep(120.0)
        assert (at.running, at.starting, at.leaving) == ({}, {}, {}), "an engine that nobody calls"


async def until_census_is_empty(at: World) -> None:
    await asyncio.sleep(15.0)  # one start may be under way
    assert at.census() == {}


async def all_slots_work(at: World, clients: Clients) -> None:
    """An organisation that is alone has every slot of the replicas that run, in whatever process."""
    await asyncio.sleep(PRESENT_S + 1)
    at.gate.warm()
    await asyncio.sleep(15.0)
    assert at.running, "it is woken"
    for ingress in range(len(at.ingresses)):
        slots, began_s = at.gate.view().slots, time.monotonic()
        asked = [clients.ask(HEALTHY, 2.0, ingress=ingress) for _ in range(slots)]
        assert await asyncio.gather(*asked) == [None] * slots
        assert time.monotonic() - began_s < 2.5


async def nobody_waits_for_a_flood(at: World, clients: Clients, *floods: int) -> None:
    """Who was here a moment ago waits for no call of others, in whatever process."""

    async def without_end(organisation: int, ingress: int) -> None:
        while True:
            await clients.ask(organisation, 1.0, ingress=ingress)
            await asyncio.sleep(0.001)

    ingresses, slots = range(len(at.ingresses)), at.gate.view().slots
    for ingress in ingresses:
        await clients.ask(HEALTHY, 0.0, ingress=ingress)
    flood = [
        asyncio.create_task(without_end(organisation, number % len(ingresses)))
        for organisation in floods
        for number in range(6 * slots)
    ]
    # Of two that begin at once, the second holds few at first, so what is reserved is for it as well.
    for later_s in (0.09, 1.4, 5.5) if len(floods) == 1 else (1.5, 5.5):
        await asyncio.sleep(later_s)
        for ingress in ingresses:
            began_s = time.monotonic()
            assert await clients.ask(HEALTHY, 0.0, ingress=ingress) is None
            assert time.monotonic() - began_s < 0.1, "it waits for calls of a flood"
    for one in flood:
        one.cancel()
    await asyncio.wait(flood)


@pytest.mark.parametrize(
    ("ingresses", "slots", "floods"),
    [*((ingresses, slots, 1) for ingresses in (1, 2, 3) for slots in (4, 5, 64)), (2, 64, 2)],
)
async def test_who_was_here_a_moment_ago_waits_for_no_call_of_a_flood(ingresses: int, slots: int, floods: int) -> None:
    with world(ingresses=ingresses, slots=slots, max_queued=1000) as at:
        at.run_replica()
        await asyncio.sleep(0.01)
        await nobody_waits_for_a_flood(at, Clients(at), *range(1, floods + 1))


@pytest.mark.parametrize("ingresses", [1, 2])
@pytest.mark.parametrize("is_alone", [True, False])
async def test_all_that_waits_counts_for_serve_and_one_organisation_alone_has_every_slot(
    ingresses: int, is_alone: bool
) -> None:
    with world(ingresses=ingresses, slots=4, max_queued=1000) as at:
        replica, clients = at.run_replica(), Clients(at)
        await asyncio.sleep(0.01)
        for ingress in range(0 if is_alone else ingresses):
            await clients.ask(HEALTHY, 0.0, ingress=ingress)
        began_s = time.monotonic()
        asked = [asyncio.create_task(clients.ask(FLOOD, 1.0, ingress=n % ingresses)) for n in range(24)]
        await asyncio.sleep(0.5)
        queued = sum(ingress.metrics.queued for ingress in at.ingresses)
        assert queued + len(replica.calls) == 24, "so the engine grows, whoever holds its slots"
        assert len(replica.calls) == 4 or not is_alone
        await asyncio.wait(asked)
        assert time.monotonic() - began_s < 6.5 or not is_alone
        assert at.census() == {}, "and what went away is forgotten"


async def test_an_engine_that_refuses_does_so_too_where_another_ingress_has_its_slots() -> None:
    with world(ingresses=2, slots=1, when_busy="refuse") as at:
        at.run_replica()
        clients = Clients(at)
        first = asyncio.create_task(clients.ask(1, 10.0, ingress=0))
        await asyncio.sleep(1.0)
        refusal = await clients.ask(2, 0.0, ingress=1)
        assert refusal is not None
        assert (refusal.fault, first.done()) == (BUSY, False)
        await first


@pytest.mark.parametrize("is_hung", [False, True])
async def test_a_call_that_waits_before_a_full_replica_asks_it_a_few_times_a_second(is_hung: bool) -> None:
    with world(ingresses=2, slots=1, deadline_s=60) as at:
        replica = at.run_replica()
        clients = Clients(at)
        asked = [asyncio.create_task(clients.ask(1, 10.0, ingress=number)) for number in range(2)]
        await asyncio.sleep(1.0)
        if is_hung:
            replica.goes_on.clear()
            asyncio.get_running_loop().call_later(20.0, replica.goes_on.set)
        await asyncio.gather(*asked)
        assert 10 <= replica.asked <= 250, "each waits up to a tenth of a second between two looks"
