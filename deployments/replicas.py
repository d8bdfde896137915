"""One kind of replica per capability: its engine in a process of its own. Its methods are those of the protocol.

Rules live in `contract`, computing in `models`; a replica holds both. The kinds are plain classes: the graph makes
deployments of them, and a worker that starts need not.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from functools import wraps
from typing import Any, TypeVar

from autoscaling.exporter import RayInstruments
from autoscaling.observation import HEADERS_VARIABLES, Observation
from autoscaling.ray_internals.logs import flush_logs, join_serve_logs
from autoscaling.ray_internals.replica import prepare_port
from concurrency.stalls import StallDetector, Stalled
from contract.catalog import DecisionModel, Model
from contract.chat.engine import ChatBatch, ChatEngine
from contract.decisions.engine import DecisionEngine
from contract.decisions.questions import Preset
from contract.embeddings import EmbeddingsEngine
from contract.rerank import RerankEngine
from contract.speech.engine import SpeechEngine
from contract.telemetry import ENGINE_STALLS, ENGINE_START, SPANS_LOST
from contract.tracing import Loading, RequestNames
from contract.transcription.engine import TranscriptionEngine
from contract.voice_design.engine import VoiceDesignEngine
from deployments.fork_server import footprint

log = logging.getLogger(f"parlance.{__name__}")

T = TypeVar("T", bound="type[Replica]")
Items = AsyncGenerator[Any, None]

INGRESS_SECRETS = ("PARLANCE_SECRET", "PARLANCE_DATABASE_URL", "PARLANCE_REDIS_URL", "PARLANCE_BLOBS_URL")
"""Variables that Ray hands to every process and no engine needs. It runs models of others, and may start processes."""

STORE_PREFIX = "AWS_"
"""Variables by which the store of bytes finds credentials begin so: keys, files with tokens, addresses of both."""

MOST_JOINED = 64
"""Batches of a stream that wait while the one before them is on its way; then the engine waits, too."""

SILENCES = 0.25, 0.5
"""Shares of `deadline_s` in which a replica with work may finish nothing: always, and at most. Serve looks thrice."""


class Replica:
    """Loads the adapter that the model's stanza names.

    The constructor blocks until the model can answer, so that a running replica is a warm one.
    """

    _observation = Observation()
    _has_stalled = False
    _ended, _worked_s = 0, 0.0  # calls that have ended here, and the seconds for which they had slots

    def __init__(self, model: Model) -> None:
        import models

        join_serve_logs(os.environ)
        self._labels = (model.deployment,)
        self._send = RayInstruments([ENGINE_START, ENGINE_STALLS, SPANS_LOST])
        self._observation = Observation.of_environment(os.environ, model.deployment, self._send)
        for name in list(os.environ):
            if name in (*INGRESS_SECRETS, *HEADERS_VARIABLES) or name.startswith(STORE_PREFIX):
                del os.environ[name]
        prepare_port()
        started, process_s = time.perf_counter(), footprint.age_s()
        with footprint.importing() as imports:
            self._adapter: Any = models.load(model)
        model_s, way = time.perf_counter() - started, "fork" if footprint.is_fork() else "import"
        self.loading = Loading(process_s, model_s, imports.spent_s, way)
        log.info("loaded %s in %.1f s, %.1f of them imports", model.id, model_s, imports.spent_s)
        self._calls = StallDetector(*(share * model.setup.deadline_s for share in SILENCES))
        self._send(ENGINE_START, (*self._labels, way), model_s)

    async def warm(self) -> Loading:
        """Does nothing but exist: a queued call wakes an engine at zero. Returns how long its start took."""
        return self.loading

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Called by Serve, for its controller: what the scaling policy learns from."""
        load_s = self.loading.process_s + self.loading.model_s
        return {"ended": self._ended, "worked_s": self._worked_s, "load_s": load_s}

    async def check_health(self) -> None:
        """Called by Serve, which replaces a replica where this raises thrice: its engine is dead, or has stalled.

        An adapter that judges its work by itself says in `active_s` when it was last at it; only silence since counts.
        """
        flush_logs()
        try:
            await self._adapter.check_health()
            self._calls.went_on(getattr(self._adapter, "active_s", 0.0))
            self._calls.check("calls wait, but none was answered for longer than calls before them took")
        except Stalled as stall:
            if not self._has_stalled:  # of each stall it is said once why the engine will be replaced
                self._has_stalled = True
                work, (engine,) = self._calls, self._labels
                calls = ", ".join(f"{count} {name}" for name, count in work.at_work.items()) or "none"
                log.error("%s stands still: %s; %.0f s of silence, calls: %s", engine, stall, work.silence_s, calls)
                self._send(ENGINE_STALLS, self._labels, 1)
            raise
        self._has_stalled = False

    @contextmanager
    def call(self, names: RequestNames | None, method: str) -> Iterator[None]:
        """The block is a call: part of the request that `names` names, in logs and traces, if anything does."""
        began_s = time.monotonic()
        try:
            with nullcontext() if names is None else self._observation.part_of(names, self._labels[0], method):
                yield
        finally:
            self._ended += 1
            self._worked_s += time.monotonic() - began_s

    def __del__(self) -> None:
        if adapter := getattr(self, "_adapter", None):
            adapter.close()
        if tracer := self._observation.tracer:
            tracer.close()


def answers(protocol: type) -> Callable[[T], T]:
    """Gives a kind of replica every method of `protocol` that it lacks; each hands its job to the adapter."""

    def with_methods(kind: T) -> T:
        for name, method in vars(protocol).items():
            if not name.startswith("_") and inspect.isfunction(method) and not hasattr(kind, name):
                setattr(kind, name, _answer(method) if inspect.iscoroutinefunction(method) else _stream(method))
        return kind

    return with_methods


def _answer(method: Callable[..., Any]) -> Callable[..., Any]:
    name = method.__name__

    @wraps(method)
    async def answer(self: Replica, job: Any, names: RequestNames | None = None) -> Any:
        with self.call(names, name), self._calls.watching(name):
            return await getattr(self._adapter, name)(job)

    return answer


def _stream(method: Callable[..., Any], through: Callable[[Items], Items] = lambda items: items) -> Callable[..., Any]:
    name = method.__name__

    @wraps(method)
    async def stream(self: Replica, job: Any, names: RequestNames | None = None) -> AsyncGenerator[Any, None]:
        watch = self._calls.watching(name)
        with self.call(names, name):
            async with aclosing(through(getattr(self._adapter, name)(job))) as items:
                while True:
                    try:
                        with watch:  # not around what takes the items: a slow reader is no fault of the engine
                            item = await items.__anext__()
                    except StopAsyncIteration:
                        return
                    yield item

    return stream


async def joined(source: AsyncGenerator[ChatBatch, None]) -> AsyncGenerator[ChatBatch, None]:
    """The batches of `source`, at most MOST_JOINED as one. The first waits for no other: headers are made of it.

    Those come together that are ready while one is on its way to the ingress.
    """
    ready: list[ChatBatch] = []
    has_news, has_space = asyncio.Event(), asyncio.Event()

    async def take() -> None:
        async for item in source:
            ready.append(item)
            has_news.set()
            if len(ready) >= MOST_JOINED:
                has_space.clear()
                await has_space.wait()

    taking = asyncio.create_task(take())
    taking.add_done_callback(lambda _: has_news.set())
    most = 1
    try:
        while await has_news.wait() and ready:
            items = ready[:most]
            del ready[:most]
            if not (ready or taking.done()):
                has_news.clear()
            has_space.set()
            yield ChatBatch.joined(items)
            most = MOST_JOINED
        taking.result()
    finally:
        taking.cancel()
        await asyncio.wait({taking})
        await source.aclose()


@answers(ChatEngine)
class Chat(Replica):
    """One LLM of the catalogue."""

    stream = _stream(ChatEngine.stream, joined)
    write_stream = _stream(ChatEngine.write_stream, joined)


@answers(EmbeddingsEngine)
class Embedder(Replica):
    """One embedding model."""


@answers(RerankEngine)
class Reranker(Replica):
    """One rerank model."""


@answers(SpeechEngine)
class Speaker(Replica):
    """One speech engine; what it says is encoded and marked there."""


@answers(TranscriptionEngine)
class Transcriber(Replica):
    """One transcriber."""


@answers(VoiceDesignEngine)
class VoiceDesigner(Replica):
    """One designer of voices."""


@answers(DecisionEngine)
class Scorer(Replica):
    """One decision model. Its constructor ends when the runtime is measured."""

    async def __init__(self, model: DecisionModel, presets: Sequence[Preset]) -> None:  # type: ignore[misc]  # Serve awaits it
        super().__init__(model)
        await self._adapter.measure(presets)
