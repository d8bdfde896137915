"""An engine as the ingress sees it: the owner of a call, the times of its stages, and how much it may take.

Needs no Ray: routes are tested without it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from autoscaling import views
from autoscaling.durations import Durations
from autoscaling.waits import WaitWatch
from contract.errors import UPSTREAM_TIMEOUT
from contract.telemetry import EngineState
from contract.tracing import Loading, RequestNames, Stage, StageEntry, StageSpans

J = TypeVar("J")
R = TypeVar("R")


def owner_name(organisation: int) -> str:
    """The owner of every job of an organisation. Engines serve owners in turn, and share nothing between them.

    It is the organisation and never the key, so that fifty keys have one turn.
    """
    return f"org-{organisation}"


NOBODY = owner_name(0)
"""The owner of calls that no key made. Ids of organisations begin at 1."""


@dataclass(slots=True)
class Timings:
    """Times of the stages of one call, in seconds. `queue` is the wait for a slot, `load` the wait for a replica.

    Attributes:
        waited_behind: calls that waited already when one of this request came to wait; the most of them.
        was_sent: whether the last call has gone out to a replica, as the router says (`on_send_request`, through
            `views.SENT`). A call that was sent is billed if its client leaves (`RequestContext.bill`).
        stages: stages that the request has entered, if they are recorded; the first is there from the beginning.
        spans: of these stages, where they are recorded.
        watch: receiver of reports on the wait.
    """

    queue: float = 0.0
    load: float = 0.0
    engine: float = 0.0
    waited_behind: int = 0
    was_sent: bool = False
    stages: list[StageEntry] | None = None
    spans: StageSpans | None = None
    watch: WaitWatch | None = None

    def enter(self, stage: Stage, engine: str = "") -> None:
        """Begins a stage, unless it is the one that runs. It is the same engine's where none is named."""
        if self.stages is None:
            return
        last = self.stages[-1]
        if last.stage is not stage or engine not in ("", last.engine):
            engine = "" if stage is Stage.SETTLE else engine or last.engine
            self.stages.append(StageEntry(stage, time.perf_counter(), engine))

    def loaded(self, loading: Loading | None) -> None:
        """Ends a load, of which the replica says how it went."""
        if self.stages is not None:
            self.stages[-1].loading = loading
            self.enter(Stage.QUEUE)

    def waited(self) -> float:
        """Seconds without a replica at work on it, so far."""
        return self.queue + self.load

    @contextmanager
    def measured(self) -> Iterator[tuple[Callable[..., Any], Callable[[], None]]]:
        """Counts the block as the engine's time, less what was spent in the router's queue.

        Gives a function that makes the call to the replica, given a function and its arguments, and one that brings the
        count up to date: the headers of a stream are written long before it ends.
        """
        started, queued, before = time.perf_counter(), self.queue, self.engine

        def sent() -> None:
            self.was_sent = True
            self.queue = queued + time.perf_counter() - started
            self.enter(Stage.ENGINE)

        def count() -> None:
            self.engine = before + time.perf_counter() - started - (self.queue - queued)

        # In a context of its own: a call that wakes an engine, beside this one or after it, is none of its stages.
        context = copy_context()
        context.run(views.SENT.set, sent)
        try:
            yield context.run, count
        finally:
            count()
            self.enter(Stage.SETTLE)


class Deadline:
    """A time limit for each step of a call. One timer of the loop serves all steps: most end before it looks.

        with closing(Deadline(seconds)) as deadline:
            with deadline:                      # raises UPSTREAM_TIMEOUT
                item = await anext(items)

    Attributes:
        seconds: of the next step, in the task that runs it; as long as the one before, or longer.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None
        self._has_passed = False

    def __enter__(self) -> None:
        self._due_s, self._has_passed = self._loop.time() + self.seconds, False
        self._task = task = asyncio.current_task(self._loop)
        assert task is not None
        self._cancelling = task.cancelling()
        if self._timer is None:
            self._timer = self._loop.call_at(self._due_s, self._look)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        task, self._task = self._task, None
        assert task is not None
        # As `asyncio.timeout` does: a cancellation from outside at the same moment is obeyed.
        if self._has_passed and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise UPSTREAM_TIMEOUT() from None

    def _look(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._due_s:
            self._timer = self._loop.call_at(self._due_s, self._look)
            return
        self._has_passed = True
        self._task.cancel()

    def close(self) -> None:
        """Stops the timer."""
        if self._timer:
            self._timer.cancel()


@dataclass(frozen=True, slots=True)
class EngineView:
    """An engine at one moment, as this process sees it.

    Attributes:
        waiting: calls that wait for a slot, or for a start.
        used: slots that calls of this process hold.
        slots: of all running replicas.
        loads: durations of its starts.
        lines: calls that wait, by owner.
        last_load_s: duration of the last start that this process has asked for, in seconds; None: it asked for none.
    """

    state: EngineState
    waiting: int
    used: int
    slots: int
    loads: Durations
    lines: Mapping[Hashable, int] = field(default_factory=dict)
    last_load_s: float | None = None


@dataclass(frozen=True, slots=True)
class CallContext:
    """Context of a call beside its job: its owner, the stopwatch that it fills, and its ids elsewhere."""

    owner: str = NOBODY
    timings: Timings = field(default_factory=Timings)
    names: RequestNames | None = None

    @property
    def carried(self) -> tuple[RequestNames, ...]:
        """Arguments of a replica after the job, for its logs and its span, which is a child of the stage to come."""
        if self.names is None:
            return ()
        stages, spans = self.timings.stages, self.timings.spans
        if not (stages and spans):
            return (self.names,)
        return (RequestNames(self.names.request_id, spans.of_stage(len(stages))),)


class Engine(Protocol):
    """An engine of any capability. `Gate` is one on Ray; tests put a model behind it without Ray.

    What is called is a method of the capability's protocol, so the types of its job and its answer survive:

        reply = await engine.call(ChatEngine.complete, ChatJob(request), context=context)
    """

    async def call(self, method: Callable[[Any, J], Awaitable[R]], job: J, *, context: CallContext) -> R:
        """The answer to `job`. Raises ApiError only."""

    def stream(
        self, method: Callable[[Any, J], AsyncIterator[R]], job: J, *, context: CallContext
    ) -> AsyncGenerator[R, None]:
        """The items of the answer to `job`. Raises ApiError only, at the first item or later."""

    def running(self) -> int:
        """Replicas that run."""

    def free(self) -> int:
        """Requests that the running replicas could work on beside those of this process."""

    def is_failing(self) -> bool:
        """No replica runs, and the last start is known to have failed."""

    def view(self) -> EngineView:
        """Current state of the engine."""

    def warm(self) -> None:
        """Wakes the engine, and waits for nothing."""

    async def ready(self, within_s: float, *, timings: Timings) -> None:
        """Returns once a replica runs, whatever the engine does with calls when it is cold.

        Raises WARMING_UP after `within_s` seconds, and ENGINE_FAILED.
        """
