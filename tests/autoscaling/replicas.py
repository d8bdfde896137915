"""Replicas that work, hang and die in this process, and calls at them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from ray.exceptions import ActorDiedError
from ray.serve._private.common import DeploymentID, ReplicaID

from autoscaling.router import EngineRouter

if TYPE_CHECKING:
    from tests.autoscaling.world import Ingress

NAME = "engine"


class Some:
    """A capability, as the gate is told to call it."""

    async def answer(self, job: Any) -> str:
        raise NotImplementedError

    def items(self, job: Any) -> AsyncGenerator[str, None]:
        raise NotImplementedError


@dataclass(frozen=True)
class Job:
    """Seconds for each item, and perhaps an error after the last."""

    steps_s: tuple[float, ...] = (1.0,)
    error: BaseException | None = None
    begun: Callable[[], None] = lambda: None


WARM = Job((0.0,))


class Replica:
    """One replica, as routers know it: it refuses what comes to it beside as many calls as it works on at once."""

    numbers = count(1)

    def __init__(self, slots: int) -> None:
        self.replica_id = ReplicaID(f"{NAME}-{next(self.numbers)}", DeploymentID(NAME))
        self.max_ongoing_requests = slots
        self.calls: dict[Work, None] = {}
        self.is_dead = False
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.ended, self.worked_s, self.asked = 0, 0.0, 0

    async def get_queue_len(self, *, deadline_s: float) -> int:
        self.asked += 1
        await self.is_reached()
        return len(self.calls)

    async def is_reached(self) -> None:
        """Returns once a message has come through to it."""
        await asyncio.sleep(0.001)
        if self.is_dead:
            raise ActorDiedError
        await self.goes_on.wait()

    def die(self) -> None:
        self.is_dead = True
        self.goes_on.set()
        for work in list(self.calls):
            work.end(ActorDiedError())


class Work:
    """A call at a replica, whose items its client takes when it likes; the last is an exception."""

    def __init__(self, replica: Replica, job: Job, router: EngineRouter) -> None:
        self.replica, self.job, self.given, self._router = replica, job, asyncio.Queue[Any](), router
        self.began_s = time.monotonic()
        replica.calls[self] = None
        assert len(replica.calls) <= replica.max_ongoing_requests
        self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        self.job.begun()
        for number, step_s in enumerate(self.job.steps_s):
            await asyncio.sleep(step_s)
            await self.replica.goes_on.wait()
            self.given.put_nowait(f"item {number}")
        self.end(self.job.error or StopAsyncIteration())

    def end(self, why: BaseException) -> None:
        if self.replica.calls.pop(self, self) is None:
            self.replica.ended += 1
            self.replica.worked_s += time.monotonic() - self.began_s
            self._router.decrement_queue_len_cache(self.replica.replica_id)
            self.given.put_nowait(why)
            self._task.cancel()


class Response:
    """The result of `.remote()`: its call is on its way to a replica from then on."""

    def __init__(self, ingress: Ingress, job: Job) -> None:
        self._ingress = ingress
        self._sent = asyncio.create_task(ingress.send(job))

    def __await__(self) -> Any:
        return self._answer().__await__()

    async def _answer(self) -> Any:
        try:
            while (item := await anext(self, None)) is not None:
                last = item
            return last
        finally:
            self.cancel()

    async def __anext__(self) -> Any:
        work = await self._sent
        item = await work.given.get()
        if not isinstance(item, BaseException):
            return item
        if isinstance(item, ActorDiedError):
            self._ingress.router.on_replica_actor_died(work.replica.replica_id)
        raise item

    def cancel(self) -> None:
        if not self._sent.done():
            self._sent.cancel()
        elif not self._sent.cancelled() and not self._sent.exception():
            self._sent.result().end(asyncio.CancelledError())
