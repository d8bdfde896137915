"""Is a cold engine starting, or has its start failed?

Serve knows; asking costs 10 to 60 ms, so it is asked in the background, and only while somebody waits for an engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum

from ray import serve
from ray.serve.schema import ApplicationStatus, ServeStatus

POLL_S = 1.0

FAILED = {"UNHEALTHY", "DEPLOY_FAILED"}
"""Values of Serve's `DeploymentStatus` that mean: the constructor keeps failing."""

DEPLOYING = {ApplicationStatus.NOT_STARTED, ApplicationStatus.DEPLOYING}


class Start(StrEnum):
    """What Serve says of a deployment without a running replica."""

    COLD = "cold"
    STARTING = "starting"
    FAILED = "failed"


class StartWatch:
    """The last known `Start` of each deployment of one application."""

    def __init__(self, app_name: str, ask: Callable[[], ServeStatus] = serve.status) -> None:
        self._app_name = app_name
        self._ask = ask
        self._starts: dict[str, Start] = {}

    def __getitem__(self, deployment: str) -> Start:
        return self._starts.get(deployment, Start.COLD)

    async def refresh(self) -> None:
        """Asks Serve once. Keeps what it knew if the controller does not answer."""
        status = await asyncio.to_thread(self._ask)
        app = status.applications.get(self._app_name)
        if app is None:
            return
        for name, deployment in app.deployments.items():
            if deployment.status in FAILED:
                self._starts[name] = Start.FAILED
            elif deployment.replica_states.get("STARTING"):
                self._starts[name] = Start.STARTING
            else:
                self._starts[name] = Start.COLD

    async def until_failed(self, deployment: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Returns when the start of `deployment` has failed; runs until cancelled otherwise."""
        while True:
            await self.refresh()
            if self[deployment] is Start.FAILED:
                return
            await sleep(POLL_S)

    async def until_deployed(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Returns when Serve is done with deploying the application, well or not; runs until cancelled otherwise."""
        while True:
            status = await asyncio.to_thread(self._ask)
            app = status.applications.get(self._app_name)
            if app and app.status not in DEPLOYING:
                return
            await sleep(POLL_S)
