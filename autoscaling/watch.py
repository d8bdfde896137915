"""Watch over the start of a cold engine, and whether it has failed.

Serve knows; asking costs the controller 10 to 60 ms, and that is what must start the replica. So it is asked in the
background, only while a request waits for an engine or for the graph, and by one poller of this process however many
wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from enum import StrEnum

from ray import serve
from ray.serve.schema import ApplicationStatus, ServeStatus

from contract.errors import without_text

log = logging.getLogger(f"parlance.{__name__}")

POLL_S = 1.0

FAILED = {"UNHEALTHY", "DEPLOY_FAILED"}
"""Values of Serve's `DeploymentStatus` that mean: the constructor keeps failing, unless their trigger is REPLACED."""

REPLACED = "HEALTH_CHECK_FAILED"
"""Trigger of the status while a replica that was not well is replaced, until the next one is."""

DEPLOYING = {ApplicationStatus.NOT_STARTED, ApplicationStatus.DEPLOYING}


class Start(StrEnum):
    """Serve's status of a deployment without a running replica."""

    COLD = "cold"
    STARTING = "starting"
    FAILED = "failed"


class StartWatch:
    """The last known `Start` of each deployment of one application. Used in one event loop."""

    def __init__(self, app_name: str, ask: Callable[[], ServeStatus] = serve.status) -> None:
        self._app_name = app_name
        self._ask = ask
        self._starts: dict[str, Start] = {}
        self._is_deployed = False
        self._asked_at_s = -POLL_S
        self._asking = asyncio.Lock()
        self._news = asyncio.Event()
        self._waiting = 0
        self._poller: asyncio.Task[None] | None = None

    def __getitem__(self, deployment: str) -> Start:
        return self._starts.get(deployment, Start.COLD)

    async def refresh(self) -> None:
        """Asks Serve once, one caller after the other. Keeps what it knew if the controller does not answer."""
        async with self._asking:
            try:
                self._read(await asyncio.to_thread(self._ask))
            except Exception as error:
                log.warning("could not read from Serve which engines are starting: %s", without_text(error))
            self._asked_at_s = time.monotonic()

    async def until_failed(self, deployment: str) -> None:
        """Returns when the start of `deployment` has failed; runs until cancelled otherwise.

        What is older than `POLL_S` is not believed: a failure may be over.
        """

        def has_failed() -> bool:
            return self[deployment] is Start.FAILED and time.monotonic() - self._asked_at_s <= POLL_S

        await self._until(has_failed)

    async def until_deployed(self) -> None:
        """Returns when Serve is done with deploying the application, well or not; runs until cancelled otherwise."""
        await self._until(lambda: self._is_deployed)

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Returns when `holds`, which is looked at whenever there is news."""
        self._waiting += 1
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll(), name="watch starts")
        try:
            while not holds():
                await self._news.wait()
        finally:
            self._waiting -= 1

    async def _poll(self) -> None:
        # It ends by itself: cancelled, it would leave behind a thread that waits for a controller that hangs.
        while self._waiting:
            await self.refresh()
            # Whoever waits now holds this event; the next round has one of its own.
            self._news.set()
            self._news = asyncio.Event()
            await asyncio.sleep(POLL_S)
        self._poller = None

    def _read(self, status: ServeStatus) -> None:
        app = status.applications.get(self._app_name)
        if app is None:
            return
        self._is_deployed = app.status not in DEPLOYING
        for name, deployment in app.deployments.items():
            if deployment.status in FAILED and deployment.status_trigger != REPLACED:
                self._starts[name] = Start.FAILED
            elif deployment.replica_states.get("STARTING"):
                self._starts[name] = Start.STARTING
            else:
                self._starts[name] = Start.COLD
