"""How long somebody waits beside a flood of another organisation: gates of one and of two ingress processes before one
engine, whose own queue is first come, first served as Serve's is. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve._private.router import CurrentLoopRouter

from autoscaling import views
from autoscaling.engine import CallContext, owner_name
from autoscaling.gate import Gate
from contract.catalog import Serving
from tests.autoscaling.doubles import APP, Some, View, Watch, run

CALL_S = 1.0
FLOOD, VICTIM, THIRD = 1, 2, 3


class Metrics:
    """What one handle tells Serve's controller that waits at it."""

    def __init__(self) -> None:
        self.queued = 0

    def inc_num_queued_requests(self) -> None:
        self.queued += 1

    def dec_num_queued_requests(self) -> None:
        self.queued -= 1


class Engine:
    """Replicas with so many slots together; calls of all processes stand in one queue before them."""

    def __init__(self, slots: int) -> None:
        self.free = asyncio.Semaphore(slots)
        self.under_way = 0

    async def answer(self, job: float) -> str:
        self.under_way += 1
        try:
            async with self.free:
                await asyncio.sleep(job)
                return "done"
        finally:
            self.under_way -= 1


class Handle:
    def __init__(self, engine: Engine) -> None:
        self.metrics = Metrics()
        self._router = CurrentLoopRouter.__new__(CurrentLoopRouter)
        self._router._asyncio_router = SimpleNamespace(_metrics_manager=self.metrics)  # type: ignore[assignment]
        self.answer = SimpleNamespace(remote=engine.answer)

    def options(self, stream: bool, **_: str) -> Handle:
        return self


class Serve:
    """So many ingress processes before one engine of one replica, which may become two where it `grows`."""

    def __init__(self, ingresses: int, slots: int, grows: bool) -> None:
        self.engine = Engine(slots)
        self.handles = [Handle(self.engine) for _ in range(ingresses)]
        growing: Any = {"deployment": {"autoscaling_config": {"max_replicas": 2 if grows else 1}}}
        serving = Serving(
            adapter="tests.engines:X", runtime="x", max_ongoing_requests=slots, max_queued=1000, **growing
        )
        self.gates = [
            Gate("engine", APP, serving, handle, Watch(), sharers=lambda: ingresses)  # type: ignore[arg-type]
            for handle in self.handles
        ]

    async def call(self, organisation: int, ingress: int = 0, job: float = CALL_S) -> float:
        """Seconds until an answer of `job` seconds came, less those."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await self.gates[ingress].call(Some.answer, job, context=CallContext(owner_name(organisation)))  # type: ignore[arg-type]
        return loop.time() - began_s - job

    async def seen(self, organisation: int) -> None:
        await asyncio.gather(*(self.call(organisation, ingress, 0.0) for ingress in range(len(self.gates))))

    def flood(self, organisation: int, calls: int) -> list[asyncio.Task[None]]:
        async def without_end(ingress: int) -> None:
            while True:
                await self.call(organisation, ingress)

        return [asyncio.create_task(without_end(number % len(self.gates))) for number in range(calls)]

    def demand(self) -> int:
        return self.engine.under_way + sum(handle.metrics.queued for handle in self.handles)


@contextmanager
def serving(ingresses: int, *, slots: int = 4, grows: bool = False) -> Iterator[Serve]:
    views.VIEWS[(APP, "engine")] = View(replicas=1, slots_each=slots)
    try:
        yield Serve(ingresses, slots, grows)
    finally:
        del views.VIEWS[(APP, "engine")]


@pytest.mark.parametrize("grows", [False, True], ids=["full grown", "growing"])
@pytest.mark.parametrize("ingresses", [1, 2, 3])
@pytest.mark.parametrize("moment_s", [0.09, 1.5, 7.0])
@pytest.mark.parametrize("slots", [4, 5, 64])
def test_who_was_here_a_moment_ago_waits_for_no_call_of_a_flood(
    ingresses: int, grows: bool, moment_s: float, slots: int
) -> None:
    async def waited() -> list[float]:
        with serving(ingresses, slots=slots, grows=grows) as serve:
            await serve.seen(VICTIM)
            flood = serve.flood(FLOOD, slots * 6)
            await asyncio.sleep(moment_s)
            waits = [await serve.call(VICTIM, ingress, 0.0) for ingress in range(ingresses)]
            for one in flood:
                one.cancel()
            return waits

    assert max(run(waited())) < 0.1


@pytest.mark.parametrize("grows", [False, True], ids=["full grown", "growing"])
def test_two_floods_leave_room_for_a_third_too(grows: bool) -> None:
    async def waited() -> float:
        with serving(2, slots=64, grows=grows) as serve:
            await serve.seen(THIRD)
            floods = [*serve.flood(FLOOD, 100), *serve.flood(VICTIM, 100)]
            await asyncio.sleep(1.5)
            wait = await serve.call(THIRD, 1, 0.0)
            for one in floods:
                one.cancel()
            return wait

    assert run(waited()) < 0.1


@pytest.mark.parametrize("ingresses", [1, 2])
def test_one_organisation_alone_has_every_slot(ingresses: int) -> None:
    async def done_s() -> float:
        with serving(ingresses, slots=4) as serve:
            loop = asyncio.get_running_loop()
            await asyncio.gather(*(serve.call(FLOOD, number % ingresses) for number in range(24)))
            return loop.time()

    assert run(done_s()) == pytest.approx(24 / 4 * CALL_S)


@pytest.mark.parametrize("ingresses", [1, 2])
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside another"])
def test_serve_counts_all_that_waits_so_an_engine_grows_whoever_holds_its_slots(ingresses: int, alone: bool) -> None:
    async def demand() -> tuple[int, int]:
        with serving(ingresses, slots=4, grows=True) as serve:
            if not alone:
                await serve.seen(VICTIM)
            flood = serve.flood(FLOOD, 24)
            await asyncio.sleep(1.5)
            seen = serve.demand()
            for one in flood:
                one.cancel()
            await asyncio.wait(flood)
            return seen, serve.demand()

    assert run(demand()) == (24, 0), "and what went away is forgotten"
