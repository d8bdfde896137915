"""What a request's trace tells: one span for the operation, its stages, the engine's own; and never a word of a client's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from autoscaling.observation import Observation
from autoscaling.tracing import Tracer
from contract.tracing import ATTRIBUTES, INFERENCE, SPANS, USAGE_PREFIX, Stage
from deployments.replicas import Replica
from state import State
from tests.api.conftest import Api, serving
from tests.api.walks import gates
from tests.catalogs import behaving, chat
from tests.waiting import until

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = f"00-{TRACE_ID}-00f067aa0ba902b7-01"


class Traced:
    """The app whose spans are in memory, ingress and engines alike."""

    def __init__(self, api: Api, tracer: Tracer, exporter: InMemorySpanExporter) -> None:
        self.api, self._tracer, self._exporter = api, tracer, exporter

    async def spans(self) -> list[ReadableSpan]:
        """Those of the requests so far."""
        self._tracer._processor.force_flush()
        return list(self._exporter.get_finished_spans())

    async def operation(self) -> ReadableSpan:
        """The one span of an operation."""
        (span,) = [span for span in await self.spans() if "gen_ai.operation.name" in (span.attributes or {})]
        return span


@pytest.fixture
async def traced(state: State, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Traced]:
    exporter = InMemorySpanExporter()
    tracer = Tracer(exporter, "ingress", lambda count: None)
    monkeypatch.setattr(Replica, "_observation", Observation(tracer))
    monkeypatch.setattr(Replica, "_engine", "chat-obedient", raising=False)
    catalog = behaving(obedient=chat("obedient"))
    async with serving(catalog, state, engines=gates(catalog), observation=Observation(tracer)) as api:
        yield Traced(api, tracer, exporter)
    tracer.close()


def names(spans: list[ReadableSpan]) -> list[str]:
    return sorted(span.name for span in spans)


async def test_a_chat_is_one_operation_with_its_stages(traced: Traced) -> None:
    reply = await traced.api.chat("say hello")
    assert reply.status_code == 200
    spans = await traced.spans()
    print([(s.name, dict(s.attributes)) for s in spans])
    assert names(spans) == sorted(["chat obedient", "admission", "queue", "engine", "settle", INFERENCE])
