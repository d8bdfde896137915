"""The one way in to an engine. Cold and busy are read from replica state (docs/concepts.md#cold, #busy).

    no replica runs    when_cold = refuse    503 WARMING_UP, and one warm call is left behind: it wakes the engine
                       when_cold = wait      held until a replica runs, at most `wait_s`, then 503
                       start keeps failing   503 ENGINE_FAILED
    all slots taken    when_busy = refuse    429 BUSY, from the router
                       when_busy = queue     waits in `autoscaling.slots`, which serves organisations in turn; 429 BUSY
                                             once `max_queued` of this process wait, for those that have most waiting
    deadline passed                          504 UPSTREAM_TIMEOUT
    replica died or raised                   502 UPSTREAM_ERROR, or the ApiError that it raised

Serve answers some of its exceptions itself, as plain text, so none may leave this file: no route calls `.remote()`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from typing import Any, TypeVar

from ray.serve.handle import DeploymentHandle

from autoscaling import views
from autoscaling.durations import Durations
from autoscaling.engine import CallContext, Deadline, EngineView, Timings
from autoscaling.failures import contract_error
from autoscaling.metrics import Metrics
from autoscaling.queue import QueueTimeout, SlotQueue
from autoscaling.ray_internals.metrics import counted_as_waiting
from autoscaling.slots import Slot, alone, places, queues_when_cold
from autoscaling.waits import Forecast
from autoscaling.waking import Waker
from autoscaling.watch import StartWatch
from concurrency.fairness import QueueFull
from contract.catalog import Serving
from contract.errors import BUSY, UPSTREAM_ERROR, UPSTREAM_TIMEOUT, ApiError
from contract.telemetry import FIRST_OUTPUT, LOAD, QUEUE, EngineState
from contract.tracing import Stage

SERIALIZATION = {"request_serialization": "pickle", "response_serialization": "pickle"}
"""Of what crosses to an engine: jobs and answers are classes of `contract`, so nothing has to be sent by value."""

J = TypeVar("J")
R = TypeVar("R")


class Gate:
    """One engine, as one ingress process sees it.

    `sharers` says how many processes have a gate before the same slots; `metrics` gets the times of calls.

    Attributes:
        queue: its slots, and the calls that wait for one.
        waker: wakes it from zero.
        forecast: of those calls.
    """

    def __init__(
        self,
        name: str,
        app_name: str,
        serving: Serving,
        handle: DeploymentHandle,
        watch: StartWatch,
        sharers: Callable[[], int] = alone,
        metrics: Metrics | None = None,
    ) -> None:
        self.name = name
        self._labels = (name,)
        self._metrics = metrics or Metrics()
        self.serving = serving
        self._key = (app_name, name)
        # `.options` is what makes the handle create its router, and with it the view, before the first request.
        self._handle = handle.options(stream=False, **SERIALIZATION)
        self._stream_handle = handle.options(stream=True, **SERIALIZATION)
        # Each look-up of a method by Serve makes a handle anew.
        self._method = cache(partial(getattr, self._handle))
        self._stream_method = cache(partial(getattr, self._stream_handle))
        self.waker = Waker(name, self._handle, watch, self.running, serving.load_s)
        queues = serving.when_busy == "queue"
        self.queue = SlotQueue(self._slots, serving.max_queued if queues else 0, reserves=queues, sharers=sharers)
        self.forecast = Forecast(
            self.queue, lambda: self._running_slots() or serving.max_ongoing_requests, self.waker.load_left_s
        )

    def running(self) -> int:
        """Replicas that run. A handle with a router that has no news yet counts as cold."""
        view = views.VIEWS.get(self._key)
        return view.running() if view else 0

    def free(self) -> int:
        """Requests that the running replicas could work on beside those of this process."""
        return max(0, self._running_slots() - self.queue.at_work - self.queue.waiting)

    def is_failing(self) -> bool:
        """No replica runs, and the last start is known to have failed."""
        return not self.running() and self.waker.has_failed

    def view(self) -> EngineView:
        """Current state of the engine: busy if every slot of every replica is taken by calls of this process."""
        slots, queue, waker, lines = self._running_slots(), self.queue, self.waker, self.queue.lines
        return EngineView(
            self._state(slots), queue.waiting, queue.at_work, slots, waker.loads, lines, waker.last_load_s
        )

    @property
    def times(self) -> dict[str, Durations]:
        """Times of calls and starts of this engine, to be kept over restarts."""
        return self.forecast.durations | {"load": self.waker.loads}

    def _state(self, slots: int) -> EngineState:
        if self.running():
            return EngineState.BUSY if self.queue.at_work >= slots else EngineState.READY
        if self.waker.has_failed:
            return EngineState.FAILED
        return EngineState.STARTING if self.waker.is_waking else EngineState.COLD

    def warm(self) -> None:
        """Wakes the engine, and waits for nothing."""
        self.waker.warm()

    async def call(self, method: Callable[[Any, J], Awaitable[R]], job: J, *, context: CallContext) -> R:
        """The answer to `job` by the method of the replica with the name of `method`. Raises ApiError only."""
        slot, left_s = await self._take_slot(context)
        try:
            # A call is one step of its deadline, which is closed after it.
            with context.timings.measured() as (send, _), closing(Deadline(left_s)) as deadline, deadline:
                answer: R = await send(self._method(method.__name__).remote, job, *context.carried)
                return answer
        except Exception as error:
            raise self._failed(error) from None
        finally:
            self.queue.leave(slot)

    async def stream(
        self, method: Callable[[Any, J], AsyncIterator[R]], job: J, *, context: CallContext
    ) -> AsyncGenerator[R, None]:
        """The items of the answer; the deadline holds for each. Leaving the iteration cancels the work."""
        began = time.perf_counter()
        slot, left_s = await self._take_slot(context)
        has_item = False
        try:
            with context.timings.measured() as (send, count), closing(Deadline(left_s)) as deadline:
                response = send(self._stream_method(method.__name__).remote, job, *context.carried)
                try:
                    while True:
                        with deadline:
                            item: Any = await anext(response, None)
                        if item is None:  # which no protocol has among its items
                            return
                        count()
                        if not has_item:
                            has_item, deadline.seconds = True, self.serving.deadline_s
                            self._metrics.observe(FIRST_OUTPUT, self._labels, time.perf_counter() - began)
                            self.queue.begin(slot)
                        yield item
                finally:
                    response.cancel()
        except Exception as error:
            raise self._failed(error) from None
        finally:
            self.queue.leave(slot)

    def _failed(self, error: Exception) -> ApiError:
        """Returns the error for a client. If the last replica died under its call, the engine is starting again."""
        refusal = contract_error(error)
        if refusal.fault is UPSTREAM_ERROR and not self.running():
            self.waker.warm()
        return refusal

    async def _take_slot(self, context: CallContext) -> tuple[Slot, float]:
        """A slot, which the queue's `leave` gives back, and what is left of the deadline, in seconds.

        Raises BUSY, UPSTREAM_TIMEOUT, and what `_enter` raises.
        """
        owner, timings = context.owner, context.timings
        started, loaded, timings.was_sent = time.perf_counter(), timings.load, False
        timings.enter(Stage.QUEUE, self.name)
        try:
            slot = self.queue.try_enter(owner) if self.running() else None
            if slot is None:
                timings.waited_behind = max(timings.waited_behind, self.queue.waiting)
                enter, waiting = partial(self._enter, timings), partial(self._waiting, timings)
                slot = await self.queue.enter(owner, enter, self.serving.deadline_s, waiting, timings.watch)
        except QueueFull:
            raise BUSY(
                f"{self.serving.max_queued} requests already wait for this engine; send this one again shortly",
                retry_after_s=self.forecast.retry_after_s(),
            ) from None
        except QueueTimeout:
            raise UPSTREAM_TIMEOUT() from None
        finally:
            queued_s = time.perf_counter() - started - (timings.load - loaded)
            timings.queue += queued_s
            self._metrics.observe(QUEUE, self._labels, queued_s)
        return slot, max(0.0, self.serving.deadline_s - queued_s)

    @contextmanager
    def _waiting(self, timings: Timings) -> Iterator[None]:
        # What Serve sees waiting is what makes it add replicas.
        with counted_as_waiting(self._handle), self.forecast.waiting(timings.watch):
            yield

    def _running_slots(self) -> int:
        view = views.VIEWS.get(self._key)
        return view.slots() if view else 0

    def _slots(self) -> int:
        return places(self.serving, self._running_slots())

    async def ready(self, within_s: float, *, timings: Timings) -> None:
        """Returns once a replica runs, also where calls are refused when it is cold.

        Raises WARMING_UP after `within_s` seconds, and ENGINE_FAILED.
        """
        if self.running():
            return
        started = time.perf_counter()
        timings.enter(Stage.LOAD, self.name)
        try:
            with self.forecast.waiting(timings.watch):
                await self.waker.until_running(within_s)
        finally:
            loaded_s = time.perf_counter() - started
            timings.load += loaded_s
            timings.loaded(self.waker.loading)
            self._metrics.observe(LOAD, self._labels, loaded_s)

    async def _enter(self, timings: Timings) -> None:
        """Returns once a replica runs. Raises WARMING_UP or ENGINE_FAILED."""
        if self.running() or queues_when_cold(self.serving):
            return await self.ready(self.serving.wait_s, timings=timings)
        self.waker.warm()
        raise self.waker.refusal()
