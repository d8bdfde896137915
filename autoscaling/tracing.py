"""The way of spans to a collector: OpenTelemetry's SDK, by OTLP over HTTP. Imported only where traces are wanted.

Spans are made when what they describe is over, so nothing of OpenTelemetry is on the way of a request. A thread sends
them; what it cannot get rid of is lost and counted, and nothing waits for it.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from contract import VERSION
from contract.tracing import RANDOM, SAMPLED, TraceContext, new_span_id

log = logging.getLogger(f"parlance.{__name__}")

MOST_WAITING = 8192
"""Spans of a process that wait to be sent. More are lost."""

FLUSH_S = 3.0
"""For the last spans of a process that ends."""

Attributes = Mapping[str, str | int | float | bool]


class _CountingExporter(SpanExporter):
    """Exporter that reports how many spans it could not send. Called by one thread.

    Attributes:
        taken: spans that it was given, sent or not.
    """

    def __init__(self, exporter: SpanExporter, lost: Callable[[int], None]) -> None:
        self._exporter, self._lost = exporter, lost
        self.taken = 0
        self._is_failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends `spans`. One line of the log says when that begins to fail, and one when it works again."""
        self.taken += len(spans)
        try:
            result = self._exporter.export(spans)
        except Exception:
            result = SpanExportResult.FAILURE
        has_failed = result is not SpanExportResult.SUCCESS
        if has_failed:
            self._lost(len(spans))
        if has_failed != self._is_failing:
            self._is_failing = has_failed
            log.warning("the collector takes %s", "no spans; they are lost" if has_failed else "spans again")
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Ids(IdGenerator):
    """Gives the next span the ids that other processes know it by already."""

    def __init__(self) -> None:
        self.span = TraceContext("0", "0")

    def generate_span_id(self) -> int:
        return int(self.span.span_id, 16)

    def generate_trace_id(self) -> int:
        return int(self.span.trace_id, 16)


class Tracer:
    """Decides which traces this process begins, and sends spans. Used by one thread.

    Args:
        exporter: sender of spans.
        role: of this process, `ingress` or the name of an engine's deployment.
        lost: called with the number of lost spans, by any thread.
    """

    def __init__(self, exporter: SpanExporter, role: str, lost: Callable[[int], None]) -> None:
        # What the standard variables say of resource and sampler, the SDK reads.
        resource = Resource.create({"service.instance.id": secrets.token_hex(8), "parlance.role": role})
        if str(resource.attributes["service.name"]).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": "parlance"}))
        self._ids = _Ids()
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=self._ids)
        self._exporter, self._lost = _CountingExporter(exporter, lost), lost
        self._processor = BatchSpanProcessor(self._exporter, max_queue_size=MOST_WAITING)
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("parlance", VERSION)
        self._begun = 0

    def begin(self, parent: TraceContext | None) -> TraceContext:
        """The span of a request: in the trace that it names, else in a new one."""
        trace_id = parent.trace_id if parent else secrets.token_hex(16)
        decision = self._provider.sampler.should_sample(_around(parent, is_remote=True), int(trace_id, 16), "").decision
        is_random = parent.flags & RANDOM if parent else RANDOM
        is_sampled = SAMPLED if decision is Decision.RECORD_AND_SAMPLE else 0
        return TraceContext(trace_id, new_span_id(), is_random | is_sampled, parent.state if parent else "")

    def record(
        self,
        span: TraceContext,
        parent: TraceContext | None,
        name: str,
        began_s: float,
        ended_s: float,
        attributes: Attributes,
        *,
        is_of_server: bool = False,
        has_failed: bool = False,
        link: TraceContext | None = None,
    ) -> None:
        """Sends a span that is over, and its link to a span of another trace. Times are of `time.perf_counter()`.

        `is_of_server` says that a client sent the request.
        """
        if self._begun - self._exporter.taken >= MOST_WAITING:
            self._lost(1)
            return
        self._begun += 1
        self._ids.span = span
        ahead_ns = time.time_ns() - time.perf_counter_ns()
        kind = SpanKind.SERVER if is_of_server else SpanKind.INTERNAL
        links = [Link(_known(link))] if link else []
        recorded = self._tracer.start_span(
            name, _around(parent), kind, attributes, links, start_time=ahead_ns + int(began_s * 1e9)
        )
        if has_failed:
            recorded.set_status(StatusCode.ERROR)
        recorded.end(ahead_ns + int(ended_s * 1e9))

    def close(self, within_s: float = FLUSH_S) -> None:
        """Sends what waits, and returns after `within_s` seconds at the latest."""
        closing = threading.Thread(target=self._processor.shutdown, name="last spans", daemon=True)
        closing.start()
        closing.join(within_s)


def _around(parent: TraceContext | None, *, is_remote: bool = False) -> Context:
    """Parent of a span, in the form that OpenTelemetry wants."""
    return Context() if parent is None else set_span_in_context(NonRecordingSpan(_known(parent, is_remote=is_remote)))


def _known(span: TraceContext, *, is_remote: bool = True) -> SpanContext:
    state = TraceState.from_header([span.state]) if span.state else None
    return SpanContext(int(span.trace_id, 16), int(span.span_id, 16), is_remote, TraceFlags(span.flags), state)
