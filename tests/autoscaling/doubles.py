"""Doubles for the gate: its replicas, what is known of their start, a scripted handle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from autoscaling.watch import Start, StartWatch
from contract.tracing import Loading

APP = "test"


@dataclass
class View:
    replicas: int = 0
    slots_each: int = 1

    def running(self) -> int:
        return self.replicas

    def slots(self) -> int:
        return self.replicas * self.slots_each


class Watch(StartWatch):
    """Knows the start of the one engine without asking Serve."""

    def __init__(self) -> None:
        super().__init__(APP, ask=lambda: None)  # type: ignore[arg-type,return-value]
        self.failed = asyncio.Event()
        self.noticed = Start.COLD

    def __getitem__(self, deployment: str) -> Start:
        return self.noticed

    async def refresh(self) -> None:
        self.noticed = Start.FAILED if self.failed.is_set() else Start.COLD

    async def until_failed(self, deployment: str) -> None:
        await self.failed.wait()
        await self.refresh()


@dataclass
class Response:
    """What `.remote()` gives: awaitable and iterable."""

    outcome: Any
    items: list[Any] = field(default_factory=list)
    cancelled: bool = False

    def __await__(self) -> Any:
        return self._result().__await__()

    async def _result(self) -> Any:
        if isinstance(self.outcome, asyncio.Event):
            await self.outcome.wait()
            return "late"
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    async def __aiter__(self) -> AsyncIterator[Any]:
        raise NotImplementedError
        yield

    async def __anext__(self) -> Any:
        if self.items:
            return self.items.pop(0)
        if isinstance(self.outcome, asyncio.Event):
            await self.outcome.wait()
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        raise StopAsyncIteration

    def cancel(self) -> None:
        self.cancelled = True


class Handle:
    """A deployment handle whose answers are set by the test. `started` lets a warm call return `model_s`."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.response = Response("done")
        self.started = asyncio.Event()
        self.watch = Watch()
        self.warm_calls = 0
        self.model_s = 1.0
        self.jobs: list[tuple[Any, ...]] = []

    def options(self, stream: bool, **_: str) -> Handle:
        return self

    def __getattr__(self, method: str) -> Handle:
        self.method = method
        return self

    def remote(self, *args: Any) -> Any:
        if self.method == "warm":
            return self._warm()
        self.jobs.append((self.method, *args))
        return self.response

    async def _warm(self) -> Loading:
        self.warm_calls += 1
        await self.started.wait()
        await asyncio.sleep(2 * self.model_s if self.model_s < 1 else 0)
        self.view.replicas = 1
        return Loading(process_s=0.5, model_s=self.model_s, import_s=0.25 * self.model_s, way="fork")
