"""An engine in virtual time behind the real gate, and clients who note what they were promised and what came of it."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from ray.exceptions import ActorDiedError
from ray.serve._private.router import CurrentLoopRouter

from autoscaling import views
from autoscaling.engine import CallContext, Timings, owner_name
from autoscaling.gate import Gate
from autoscaling.queue import SlotQueue
from autoscaling.waits import Wait, WaitWatch
from contract.catalog import Serving
from contract.errors import ApiError
from contract.tracing import Loading
from tests.autoscaling.doubles import APP, View, Watch
from tests.autoscaling.world import Metrics, Some

LOOK_S = 2.0
"""Between two looks of one who waits."""


@dataclass(frozen=True)
class Promise:
    """What was told at `at_s`, and when the work began."""

    at_s: float
    wait: Wait
    began_s: float
    waits_from_s: float

    @property
    def came_s(self) -> float:
        return self.began_s - self.at_s


@dataclass
class Engine:
    """One replica with so many slots, which takes `load_s()` to start; calls say themselves how long they take."""

    slots: int
    load_s: Callable[[], float]
    view: View = field(init=False)
    calls: set[asyncio.Task[Any]] = field(default_factory=set)
    loading_s: float = 0.0

    def __post_init__(self) -> None:
        self.view = View(0, self.slots)
        self.up = asyncio.Event()
        self.starting: asyncio.Task[None] | None = None

    def options(self, stream: bool, **_: str) -> Engine:
        return self

    @property
    def answer(self) -> Any:
        return SimpleNamespace(remote=self._answer)

    @property
    def warm(self) -> Any:
        return SimpleNamespace(remote=self._warm)

    @property
    def _router(self) -> Any:
        router = CurrentLoopRouter.__new__(CurrentLoopRouter)
        router._asyncio_router = SimpleNamespace(_metrics_manager=Metrics(lambda: None))  # type: ignore[assignment]
        return router

    async def _answer(self, began: Callable[[], float]) -> None:
        await self._warm()
        work = asyncio.create_task(asyncio.sleep(began()))
        self.calls.add(work)
        try:
            await work
        except asyncio.CancelledError:
            raise ActorDiedError from None
        finally:
            self.calls.discard(work)

    async def _warm(self) -> Loading:
        if self.starting is None:
            self.starting = asyncio.create_task(self._start())
        await self.up.wait()
        return Loading(0.0, self.loading_s, 0.0, "import")

    async def _start(self) -> None:
        self.loading_s = self.load_s()
        await asyncio.sleep(self.loading_s)
        self.wake()

    def wake(self) -> None:
        self.view.replicas = 1
        self.up.set()

    def sleep(self) -> None:
        self.view.replicas = 0
        self.up.clear()
        self.starting = None

    def die(self) -> None:
        """The replica has died; what it worked on has failed. Serve starts another one."""
        self.sleep()
        for call in self.calls:
            call.cancel()
        self.starting = asyncio.create_task(self._start())


class Crowd:
    """Clients of one gate before an engine."""

    def __init__(self, engine: Engine, service_s: Callable[[], float], **serving: Any) -> None:
        stanza = Serving(
            adapter="tests.engines:X",
            runtime="x",
            max_ongoing_requests=engine.slots,
            max_queued=1000,
            deadline_s=10_000,
            wait_s=10_000,
            **serving,
        )
        self.engine, self.service_s = engine, service_s
        of_loop = partial(SlotQueue, clock=asyncio.get_running_loop().time)
        with mock.patch("autoscaling.gate.SlotQueue", of_loop):
            self.gate = Gate("engine", APP, stanza, engine, Watch())  # type: ignore[arg-type]
        self.promises: list[Promise] = []
        self.tasks: set[asyncio.Task[None]] = set()

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
        loop, came_s = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        watch = WaitWatch(owner)
        looks: list[tuple[float, Wait]] = []
        looking = asyncio.create_task(self._look(watch, looks))
        began_s: list[float] = []

        def begin() -> float:
            watch.answered()
            began_s.append(loop.time())
            return self.service_s()

        try:
            await self.gate.call(Some.answer, begin, context=CallContext(owner, Timings(watch=watch)))  # type: ignore[arg-type]
        except ApiError:
            pass
        finally:
            looking.cancel()
        if began_s:
            self.promises += [Promise(at_s, wait, began_s[0], came_s) for at_s, wait in looks]

    async def _look(self, watch: WaitWatch, looks: list[tuple[float, Wait]]) -> None:
        loop = asyncio.get_running_loop()
        await watch.begun
        while True:
            if wait := watch.look():
                looks.append((loop.time(), wait))
            await asyncio.sleep(LOOK_S if wait else 0.1)


@contextmanager
def crowd(slots: int, service_s: Callable[[], float], start_s: Callable[[], float], **serving: Any) -> Iterator[Crowd]:
    engine = Engine(slots, start_s)
    views.VIEWS[(APP, "engine")] = engine.view
    try:
        yield Crowd(engine, service_s, **serving)
    finally:
        del views.VIEWS[(APP, "engine")]


def kept(promises: list[Promise]) -> float:
    known = [(one.came_s, one.wait.p90_s) for one in promises if one.wait.p90_s is not None]
    return sum(came_s <= p90_s for came_s, p90_s in known) / len(known)


def errors(promises: list[Promise]) -> list[float]:
    """How far the middle estimate was off, as a share of the wait, of waits longer than a second; ascending."""
    return sorted(
        abs(one.came_s - one.wait.eta_s) / one.came_s
        for one in promises
        if one.wait.eta_s is not None and one.came_s > 1
    )


def lognormal(draw: random.Random, median_s: float, sigma: float) -> Callable[[], float]:
    return lambda: median_s * draw.lognormvariate(0, sigma)
