"""A cold start: how an engine at zero is woken, by one warm call for all that wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from functools import partial

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from autoscaling import views
from autoscaling.durations import Durations
from autoscaling.ray_internals.metrics import hurried
from autoscaling.waits import MEMORY_STARTS, retry_after_s
from autoscaling.watch import Start, StartWatch
from concurrency.background import in_background
from contract.errors import ENGINE_FAILED, WARMING_UP, ApiError
from contract.tracing import Loading

log = logging.getLogger(f"parlance.{__name__}")


class Waker:
    """Wakes one engine, as one ingress process sees it.

    Args:
        name: of its deployment.
        handle: to it; its replicas have a method `warm`.
        watch: knows whether its start has failed.
        running: number of replicas that run.
        load_s: duration of a start, until one was measured.

    Attributes:
        loading: report of the replica that was woken last on its start; None before it.
        loads: durations of starts, in seconds.
        last_load_s: the last of these; None before the first.
    """

    def __init__(
        self, name: str, handle: DeploymentHandle, watch: StartWatch, running: Callable[[], int], load_s: float
    ) -> None:
        self._name = name
        self._handle = handle
        self._watch = watch
        self._running = running
        self.loads = Durations(MEMORY_STARTS, load_s)
        self.loading: Loading | None = None
        self.last_load_s: float | None = None
        self._since_s: float | None = None
        """Loop time at which this process first saw no replica; None if it has not, or has not asked."""
        self.warming: asyncio.Task[None] | None = None

    @property
    def has_failed(self) -> bool:
        """Says if the last start is known to have failed."""
        return self._watch[self._name] is Start.FAILED

    @property
    def is_waking(self) -> bool:
        """Says if a start that this process has asked for is under way."""
        return self.warming is not None and not self.warming.done()

    def warm(self) -> asyncio.Task[None]:
        """The call that wakes the engine, which serves a thundering herd of requests."""
        if not self.is_waking or self.warming is None:
            # A context of its own, as in `in_background`: Serve cancels the calls of a request when its client goes.
            loop, name = asyncio.get_running_loop(), f"warm {self._name}"
            self.warming = loop.create_task(self._wake(), name=name, context=Context())
        return self.warming

    def refusal(self) -> ApiError:
        """Returns the answer to a request that does not wait."""
        return ENGINE_FAILED() if self.has_failed else WARMING_UP(retry_after_s=self._retry_after_s())

    async def until_running(self, within_s: float) -> None:
        """Returns once a replica runs. Raises WARMING_UP after `within_s` seconds, and ENGINE_FAILED."""
        failed = asyncio.create_task(self._watch.until_failed(self._name))
        try:
            # `wait` cancels neither: a client that leaves must not take the wake-up of the others with it.
            done, _ = await asyncio.wait({self.warm(), failed}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            failed.cancel()
        if not self._running():
            raise ENGINE_FAILED() if failed in done else WARMING_UP(retry_after_s=self._retry_after_s())

    async def _wake(self) -> None:
        """One queued call is what scales an engine up from zero; Serve forgets a call that is cancelled early."""
        loop = asyncio.get_running_loop()
        self._since_s = started_s = loop.time()
        self.loading = None
        # Nobody waits at an engine that refuses, so this is where the failure of its start is noticed.
        watching = asyncio.create_task(self._watch.until_failed(self._name))
        try:
            warmed = self._handle.warm.remote()
            async with hurried(self._handle):
                self.loading = await warmed
            if 0 < self.loading.model_s <= (waited_s := loop.time() - started_s):  # else it ran, or was about to
                self.loads.add(waited_s)
                self.last_load_s = waited_s
            if self.has_failed:
                in_background(self._watch.refresh())  # forgets that; the controller may not answer
        except (RayError, RayServeException, views.EngineBusy) as error:  # one that is busy runs already
            log.warning("engine %s was not woken: %s", self._name, type(error).__name__)
        finally:
            self._since_s = None
            watching.cancel()

    def load_left_s(self) -> Callable[[float], float] | None:
        """Quantiles of the seconds until a replica runs, which are what is left of a start; None: one runs."""
        if self._running():
            self._since_s = None
            return None
        now_s = asyncio.get_running_loop().time()
        self._since_s = now_s if self._since_s is None else self._since_s
        return partial(self.loads.left, now_s - self._since_s)

    def _retry_after_s(self) -> int:
        return retry_after_s(left_s(0.5) if (left_s := self.load_left_s()) else 0.0)
