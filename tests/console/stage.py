"""The server that the console talks to: the real app and state, over engines whose states a test sets."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, cast

from autoscaling.durations import Durations
from autoscaling.engine import CallContext, Engine, EngineView, Timings
from contract.access import Scope
from contract.catalog import Catalog, Model
from contract.telemetry import EngineState
from contract.tracing import Loading
from contract.tracing import Stage as Part
from deployments.ingress.app import build_app
from deployments.ingress.console import Console
from deployments.ingress.context import Service
from state import State
from tests.api.conftest import Api, client_of
from tests.api.engines import LocalEngine
from tests.api.ports import at_port


class StagedEngine(LocalEngine):
    """An engine that is seen as a test says, and whose calls wait as it says.

    Attributes:
        load_s, queue_s: for how long each call waits.
        behind: how many waited before it.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.load_s = self.queue_s = 0.0
        self.behind = 0
        self._view = EngineView(EngineState.READY, 0, 0, 2, Durations(1, 3.0))

    def view(self) -> EngineView:
        return self._view

    def show(self, state: EngineState | None = None, **fields: Any) -> None:
        self._view = replace(self._view, **({"state": state} if state else {}), **fields)

    async def call(self, method: Any, job: Any, *, context: CallContext) -> Any:
        await self._wait(context.timings)
        return await super().call(method, job, context=context)

    async def _wait(self, timings: Timings) -> None:
        timings.waited_behind = max(timings.waited_behind, self.behind)
        if self.load_s:
            timings.enter(Part.QUEUE, self.name)
            timings.enter(Part.LOAD, self.name)
            await asyncio.sleep(self.load_s)
            timings.load += self.load_s
            part_s = self.load_s / 4  # for a place, the process, imports, weights
            timings.loaded(Loading(process_s=part_s, model_s=2 * part_s, import_s=part_s, way="fork"))
        if self.queue_s:
            timings.enter(Part.QUEUE, self.name)
            await asyncio.sleep(self.queue_s)
            timings.queue += self.queue_s


class Stage:
    """The server. It can be stopped and started at the same port, as another process over the same state.

    Attributes:
        url: its root, without a slash at its end.
        api: makes organisations and keys, and sends requests past the socket.
        engines: by the names of their deployments.
    """

    def __init__(self, catalog: Catalog, state: State) -> None:
        self.catalog, self._state = catalog, state
        self.engines = {model.deployment: StagedEngine(model) for model in catalog.deployed()}
        self.url = ""
        self._open = AsyncExitStack()

    async def start(self) -> None:
        """Begins to listen: at the port of before, if there was one."""
        engines = cast("dict[str, Engine]", self.engines)
        self.console = Console(self.catalog, engines)
        self.service = Service(self.catalog, engines, self._state, console=self.console)
        self.service.drafts.pause_s = 0.01
        self.api = Api(self.service, client_of(self.service))
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        self.url = await self._open.enter_async_context(at_port(build_app(self.service), port))
        self.service.drafts.start()

    async def stop(self) -> None:
        await self.console.close()
        await self.service.drafts.close()
        await self._open.aclose()

    async def key(self, *scopes: Scope, **whose: Any) -> str:
        """A key of `acme`, with every scope but an operator's unless some are named."""
        return await self.api.key(*(scopes or {*Scope} - {Scope.CONSOLE_OPERATE}), **whose)
