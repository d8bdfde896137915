"""When a replica says that it is not well: by what its calls took, whichever capability it has."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from autoscaling.deployment import deployment_options
from concurrency.stalls import Stalled
from contract.chat.engine import ChatBatch, ChatEngine
from contract.decisions.engine import DecisionEngine
from contract.embeddings import EmbeddingsEngine
from contract.rerank import RerankEngine
from contract.speech.engine import SpeechEngine
from contract.telemetry import ENGINE_STALLS
from contract.transcription.engine import TranscriptionEngine
from contract.voice_design.engine import VoiceDesignEngine
from deployments.replicas import (
    SILENCES,
    Chat,
    Embedder,
    Replica,
    Reranker,
    Scorer,
    Speaker,
    Transcriber,
    VoiceDesigner,
)
from tests.catalogs import chat
from tests.waiting import cancelled, until

KINDS: dict[type[Replica], type] = {
    Chat: ChatEngine,
    Embedder: EmbeddingsEngine,
    Reranker: RerankEngine,
    Speaker: SpeechEngine,
    Transcriber: TranscriptionEngine,
    VoiceDesigner: VoiceDesignEngine,
    Scorer: DecisionEngine,
}
METHODS = [
    pytest.param(kind, method, id=f"{kind.__name__}.{name}")
    for kind, protocol in KINDS.items()
    for name, method in vars(protocol).items()
    if not name.startswith("_") and inspect.isfunction(method)
]
DEADLINE_S = 300.0
LEAST_S, MOST_S = (share * DEADLINE_S for share in SILENCES)

ITEM = ChatBatch(b"data: 1\n\n", 1, 1)


class Waiting:
    """An engine of any capability, which gives an item, or an answer, each time it is told to go on."""

    def __init__(self) -> None:
        self.steps: asyncio.Queue[None] = asyncio.Queue()

    def has(self, method: Any) -> None:
        """From now on it has this method of a protocol."""
        setattr(self, method.__name__, self._answer if inspect.iscoroutinefunction(method) else self._items)

    async def check_health(self) -> None:
        pass

    def close(self) -> None:
        pass

    async def _answer(self, job: Any) -> str:
        await self.steps.get()
        return "the answer"

    async def _items(self, job: Any) -> AsyncGenerator[ChatBatch, None]:
        while True:
            await self.steps.get()
            yield ITEM


class Ward:
    """A replica, its clock, and what it tells."""

    def __init__(self, kind: type[Replica], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("deployments.replicas.prepare_port", lambda: None)
        self.now_s, self.observed = 0.0, []
        self.replica: Any = object.__new__(kind)
        Replica.__init__(self.replica, chat("obedient", deadline_s=DEADLINE_S))
        self.engine = self.replica._adapter = Waiting()
        self.calls = self.replica._calls
        self.calls._now = lambda: self.now_s
        self.replica._send = lambda *observed: self.observed.append(observed)

    async def until_at_work(self, count: int) -> None:
        await until(lambda: self.calls.at_work.total() == count)

    async def is_well(self) -> bool:
        try:
            await self.replica.check_health()
        except Stalled:
            return False
        return True


def spent(calls: Any) -> Any:
    """What a method gives, as one future: its answer, or nothing once its items have ended."""

    async def all_items() -> None:
        async with aclosing(calls) as items:
            async for _ in items:
                pass

    return asyncio.ensure_future(calls if inspect.isawaitable(calls) else all_items())


@pytest.mark.parametrize(("kind", "method"), METHODS)
async def test_every_call_of_every_kind_is_work_and_what_comes_of_it_progress(
    kind: type[Replica], method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward = Ward(kind, monkeypatch)
    ward.engine.has(method)
    assert await ward.is_well()
    call = spent(getattr(ward.replica, method.__name__)("a job"))
    await ward.until_at_work(1)
    ward.now_s = MOST_S
    assert await ward.is_well()
    ward.now_s += 0.1
    assert not await ward.is_well()
    ward.engine.steps.put_nowait(None)
    await until(lambda: ward.calls.progressed_s > 0)
    assert await ward.is_well()
    assert (await ward.replica.record_autoscaling_stats())["ended"] == int(call.done())
    await cancelled(call)
    assert (await ward.replica.record_autoscaling_stats())["ended"] == 1
    ward.now_s += 10 * MOST_S
    assert await ward.is_well(), "it is idle"


async def test_after_short_calls_a_hung_one_is_noticed_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    ward = Ward(Embedder, monkeypatch)
    ward.engine.has(EmbeddingsEngine.embed)
    for _ in range(5):
        ward.engine.steps.put_nowait(None)
        await ward.replica.embed("a job")
    call = spent(ward.replica.embed("a job"))
    await ward.until_at_work(1)
    ward.now_s = LEAST_S
    assert await ward.is_well()
    ward.now_s += 0.1
    assert not await ward.is_well()
    call.cancel()


async def test_an_engine_that_judges_its_work_itself_may_be_at_it_for_as_long_as_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ward = Ward(Speaker, monkeypatch)
    ward.engine.has(SpeechEngine.speak_whole)
    call = spent(ward.replica.speak_whole("a job"))
    await ward.until_at_work(1)
    ward.now_s = ward.engine.active_s = 4 * 3600.0  # type: ignore[attr-defined]
    assert await ward.is_well()
    ward.now_s += MOST_S + 0.1
    assert not await ward.is_well()
    call.cancel()


async def test_a_stall_is_told_once_without_what_was_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ward = Ward(Speaker, monkeypatch)
    ward.engine.has(SpeechEngine.speak_whole)
    calls = [spent(ward.replica.speak_whole("a secret")) for _ in range(2)]
    await ward.until_at_work(2)
    ward.now_s = MOST_S + 1
    with caplog.at_level(logging.ERROR, "parlance"):
        assert [await ward.is_well() for _ in range(3)] == [False] * 3
    (record,) = caplog.records
    line = record.getMessage()
    assert all(part in line for part in ("obedient", "151 s", "2 speak_whole"))
    assert "secret" not in line
    assert ward.observed == [(ENGINE_STALLS, (chat("obedient").deployment,), 1)]
    ward.engine.steps.put_nowait(None)
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    assert await ward.is_well()
    ward.now_s += MOST_S + 1
    assert not await ward.is_well()
    assert len(ward.observed) == 2
    for call in calls:
        call.cancel()


async def test_a_client_that_reads_slowly_does_not_make_its_engine_unwell(monkeypatch: pytest.MonkeyPatch) -> None:
    ward = Ward(Speaker, monkeypatch)
    ward.engine.has(SpeechEngine.speak)
    ward.engine.steps.put_nowait(None)
    async with aclosing(ward.replica.speak("a job")) as items:
        assert await anext(items) == ITEM
        ward.now_s += 100 * MOST_S
        assert await ward.is_well()


def test_serve_looks_often_enough_to_replace_a_replica_before_nobody_waits() -> None:
    """And one whose event loop is blocked does not answer, which counts as being unwell."""
    options = deployment_options(chat("obedient"))
    period_s, timeout_s = options["health_check_period_s"], options["health_check_timeout_s"]
    assert 3 * 1.1 * period_s < (1 - SILENCES[1]) * 120  # the shortest deadline that is shipped
    assert 3 * (1.1 * period_s + timeout_s) < 120
