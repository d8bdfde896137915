"""Engines of this process: the product's own gate and replica, between them a handle that needs no Ray."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import models
from autoscaling import views
from autoscaling.engine import CallContext, Engine
from autoscaling.gate import Gate
from autoscaling.metrics import Metrics
from autoscaling.slots import Slot
from autoscaling.watch import Start, StartWatch
from concurrency.stalls import StallDetector
from contract.catalog import Catalog, Model
from contract.tracing import Loading
from deployments.replicas import Chat, Embedder, Replica, Reranker, Scorer, Speaker, Transcriber, VoiceDesigner
from tests.scripted import Script, ScriptedChat

if TYPE_CHECKING:
    from tests.api.conftest import Api

METRICS = Metrics(lambda *_: None)

KINDS: Mapping[str, type[Replica]] = {
    "chat": Chat,
    "embeddings": Embedder,
    "rerank": Reranker,
    "speech": Speaker,
    "transcription": Transcriber,
    "voice_design": VoiceDesigner,
    "decisions": Scorer,
}
REPLICAS: Mapping[str, Any] = {
    noun: type(kind.__name__, (kind,), {"__del__": lambda _: None}) for noun, kind in KINDS.items()
}
"""Replicas that close nothing at their end: a test's own adapter may have nothing to close."""


class Watch(StartWatch):
    """Knows the start of the one engine without asking Serve."""

    def __init__(self) -> None:
        super().__init__("test", ask=lambda: None)  # type: ignore[arg-type,return-value]
        self.failed = asyncio.Event()
        self.noticed = Start.COLD

    def __getitem__(self, deployment: str) -> Start:
        return self.noticed

    async def refresh(self) -> None:
        self.noticed = Start.FAILED if self.failed.is_set() else Start.COLD

    async def until_failed(self, deployment: str) -> None:
        await self.failed.wait()
        await self.refresh()


class LocalResponse:
    """An answer of a replica in this process."""

    def __init__(self, answer: Any, handle: LocalHandle) -> None:
        self._answer = answer
        self._handle = handle

    def __await__(self) -> Any:
        return self._answer.__await__()

    async def __anext__(self) -> Any:
        item = await anext(self._answer)
        self._handle.given += 1
        return item

    def cancel(self) -> None:
        """Ends a stream that its client has left; one that is over has no frame."""
        if self._answer.ag_frame:
            self._handle.closing = asyncio.ensure_future(self._answer.aclose())


class LocalHandle:
    """Serve's handle over a replica in this process, and the view of it.

    Attributes:
        capacity: slots of the replica.
        is_there: whether it runs. One that does not starts when it is woken and `may_start`.
        asked: names of the methods that were called.
        given: items of streams.
        closing: the end of the last stream that was left.
    """

    def __init__(self, replica: Any, capacity: int) -> None:
        self.replica = replica
        self.capacity = capacity
        self.is_there = True
        self.may_start = asyncio.Event()
        self.asked: list[str] = []
        self.given = 0
        self.closing: asyncio.Future[Any] | None = None

    def options(self, stream: bool, **_: str) -> LocalHandle:
        return self

    def running(self) -> int:
        return int(self.is_there)

    def slots(self) -> int:
        return self.capacity * self.is_there

    def sleep(self) -> None:
        """From now on no replica runs."""
        self.is_there = False
        self.may_start.clear()

    def __getattr__(self, method: str) -> Any:
        remote: Any = partial(self._remote, method)
        remote.remote = remote
        return remote

    def _remote(self, method: str, *job: Any) -> Any:
        self.asked.append(method)
        if method == "warm":
            return self._start()
        self._send()
        return LocalResponse(getattr(self.replica, method)(*job), self)

    def _send(self) -> None:
        """As the router does when a call goes out to a replica."""
        if sent := views.SENT.get():
            sent()

    async def _start(self) -> Loading:
        if not self.is_there:
            await self.may_start.wait()
            self.is_there = True
        self._send()
        loading: Loading = await self.replica.warm()
        return loading


class LocalEngine(Gate):
    """The real gate before a real replica, whose adapter obeys or follows a script.

    Attributes:
        handle: to the replica, which a test may send to sleep.
        callers: owners of its calls.
        watch: knows whether its start has failed.
        warmed: how often somebody asked for a replica without a job.
    """

    numbers = count()

    def __init__(self, model: Model) -> None:
        assert model.serving
        replica: Replica = object.__new__(REPLICAS[model.noun])
        replica.loading = Loading(0.0, 0.0, 0.0, "import")
        replica._calls, replica._labels = StallDetector(60, 60), (model.deployment,)
        handle: Any = LocalHandle(replica, model.serving.max_ongoing_requests)
        # Several of one name are there at a time: each stands for a process.
        key = f"local {next(self.numbers)}", model.deployment
        views.VIEWS[key] = handle
        weakref.finalize(self, views.VIEWS.pop, key)
        self.handle: LocalHandle = handle
        self.adapter = models.load(model)
        self.callers: list[str] = []
        self.watch = Watch()
        self.warmed = 0
        super().__init__(model.deployment, key[0], model.serving, handle, self.watch, metrics=METRICS)

    @property
    def adapter(self) -> Any:
        """The adapter of the replica."""
        return self.handle.replica._adapter

    @adapter.setter
    def adapter(self, adapter: Any) -> None:
        self.handle.replica._adapter = adapter

    @property
    def given(self) -> int:
        """Items of its streams so far."""
        return self.handle.given

    async def _take_slot(self, context: CallContext) -> tuple[Slot, float]:
        self.callers.append(context.owner)
        return await super()._take_slot(context)

    def warm(self) -> None:
        self.warmed += 1
        super().warm()


def local_engines(catalog: Catalog) -> dict[str, Engine]:
    """Every engine of `catalog` in this process."""
    return {model.deployment: LocalEngine(model) for model in catalog.deployed()}


class Acting:
    """An adapter of any capability that gives `items`, then raises `error`, or holds its calls for ever.

    With `answer` it gives what that makes of each job instead; at a None it waits until `go` is set, as it is at first.

    Attributes:
        under_way, most_under_way: calls it works on, and the most at a time.
        asked: set once a call is held, or answered.
        jobs: of all calls.
    """

    def __init__(
        self, *items: Any, error: Exception | None = None, answer: Callable[[Any], Iterable[Any]] | None = None
    ) -> None:
        self.items, self.error, self.answer = items, error, answer
        self.under_way = self.most_under_way = 0
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()
        self.jobs: list[Any] = []

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        return self._stream if method in STREAMS else self._call

    async def _call(self, job: Any) -> Any:
        (answer,) = [item async for item in self._stream(job)]
        return answer

    async def _stream(self, job: Any) -> AsyncGenerator[Any, None]:
        self.jobs.append(job)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if self.answer:
                self.asked.set()
                for item in self.answer(job):
                    if item is None:
                        await self.go.wait()
                    else:
                        yield item
                return
            for item in self.items:
                yield item
            self.asked.set()
            if self.error:
                raise self.error
            await asyncio.Event().wait()
        finally:
            self.under_way -= 1


STREAMS = {"stream", "counted", "write_stream", "speak", "transcribe"}
"""Methods of the protocols that give items."""

CHAT = "chat-obedient"


def scripted(api: Api, script: Script) -> ScriptedChat:
    """Has the chat model answer `script`."""
    made = api.engine(CHAT).adapter = ScriptedChat(script)
    return made


def refusing(api: Api, error: Exception) -> None:
    """Has the chat model answer with `error`, whole or before the first event."""
    api.engine(CHAT).adapter = Acting(error=error)
