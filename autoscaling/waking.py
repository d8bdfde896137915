"""How an engine at zero is woken: by one warm call, whoever waits for it."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from autoscaling.ray_internals.metrics import hurried
from autoscaling.watch import Start, StartWatch
from contract.errors import ENGINE_FAILED, WARMING_UP, ApiError
from contract.limits import COLD_RETRY_AFTER_MAX_S

log = logging.getLogger(f"parlance.{__name__}")

SPREAD = 0.25
"""By this share at most `Retry-After` is longer than a cold start."""


class Waker:
    """Wakes one engine, as one ingress process sees it.

    Args:
        name: of its deployment.
        handle: to it, whose replicas have a method `warm`.
        watch: knows whether its start has failed.
        running: how many replicas run.
        load_s: how long a start takes, until one was measured.

    Attributes:
        model_s: how long the model of the replica that was woken last took to load, as it says; 0 where it does not.
    """

    def __init__(
        self, name: str, handle: DeploymentHandle, watch: StartWatch, running: Callable[[], int], load_s: float
    ) -> None:
        self._name = name
        self._handle = handle
        self._watch = watch
        self._running = running
        self._load_s = load_s
        self.model_s = 0.0
        self.warming: asyncio.Task[None] | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the last start is known to have failed."""
        return self._watch[self._name] is Start.FAILED

    @property
    def is_waking(self) -> bool:
        """Whether a start is under way that this process has asked for."""
        return self.warming is not None and not self.warming.done()

    def warm(self) -> asyncio.Task[None]:
        """The call that wakes the engine, which serves a thundering herd of requests."""
        if not self.is_waking or self.warming is None:
            self.warming = asyncio.create_task(self._wake(), name=f"warm {self._name}")
        return self.warming

    def refusal(self) -> ApiError:
        """What a request is told that does not wait."""
        return ENGINE_FAILED() if self.has_failed else WARMING_UP(retry_after_s=self._retry_after_s())

    async def until_running(self, within_s: float) -> None:
        """Returns once a replica runs. Raises WARMING_UP after `within_s` seconds, and ENGINE_FAILED."""
        failed = asyncio.create_task(self._watch.until_failed(self._name))
        try:
            # Shielded by `wait`: a client that leaves must not take the wake-up of the others with it.
            done, _ = await asyncio.wait({self.warm(), failed}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            failed.cancel()
        if self._running():
            return
        if failed in done and not failed.cancelled():
            raise ENGINE_FAILED()
        raise WARMING_UP(retry_after_s=self._retry_after_s())

    async def _wake(self) -> None:
        """One queued call is what scales an engine up from zero; Serve forgets a call that is cancelled early."""
        started, self.model_s = time.perf_counter(), 0.0
        # Nobody waits at an engine that refuses, so this is where the failure of its start is noticed.
        watching = asyncio.create_task(self._watch.until_failed(self._name))
        try:
            warmed = self._handle.warm.remote()
            async with hurried(self._handle):
                self.model_s = await warmed
            self._load_s = time.perf_counter() - started
            await self._watch.refresh()  # forgets an earlier failure
        except (RayError, RayServeException) as error:
            log.warning("engine %s did not start: %s", self._name, type(error).__name__)
        finally:
            watching.cancel()

    def _retry_after_s(self) -> int:
        """The time that loading takes, and up to a quarter more or less: those who were refused come one by one."""
        load_s = min(COLD_RETRY_AFTER_MAX_S / (1 + SPREAD), self._load_s)
        return max(1, math.ceil(load_s * random.uniform(1, 1 + SPREAD)))
