"""Reports of a single request: its ids for others, the spans of its trace, its line of the log, its record."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, MutableMapping
from typing import Any

from starlette.requests import HTTPConnection

from contract.telemetry import NO_MODEL, Outcome
from contract.tracing import (
    CANCELLED,
    LOAD_PROCESS,
    NAMES,
    OPERATIONS,
    ROUTE_OPERATIONS,
    USAGE_PREFIX,
    RequestNames,
    Stage,
    StageEntry,
    StageSpans,
    incoming,
)
from deployments.ingress.console.records import FinishedRequest
from deployments.ingress.context import Exchange
from deployments.ingress.front.origins import is_from_proxy

log = logging.getLogger(f"parlance.{__name__}")

CONSOLE_PATHS = ("/console", "/v1/console")
NO_ROUTE = "none"
"""Value where a request has none."""

USAGE = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_input_tokens": "gen_ai.usage.cache_read.input_tokens",
}
"""Units for which the convention has a name. Cached tokens are among those of the input."""

Scope = MutableMapping[str, Any]


def begin(exchange: Exchange, scope: Scope, headers: Collection[tuple[bytes, bytes]]) -> None:
    """Names a request, by the span that its `headers` name or by one of its own, where it is traced or logged.

    A trace that a client names is linked to, and one of a named proxy continued: a client chooses neither what is
    recorded nor under which id.
    """
    observation, span = exchange.service.observation, incoming(headers)
    if tracer := observation.tracer:
        is_trusted = span is not None and is_from_proxy(HTTPConnection(scope))
        parent, link = (span, None) if is_trusted else (None, span)
        span = tracer.begin(parent)
        if span.is_sampled:
            exchange.timings.spans = StageSpans(span, parent, link)
            exchange.timings.stages = [StageEntry(Stage.ADMISSION, exchange.started_s)]
    if span or observation.is_on:
        exchange.names = RequestNames(exchange.request_id, span)
        NAMES.set(exchange.names)


def end(exchange: Exchange, scope: Scope, status: int, outcome: Outcome) -> None:
    """Reports a request that is over; its `status` is 0 if none went out."""
    ended_s = time.perf_counter()
    about = {
        "http.request.method": scope["method"],
        "http.route": _route(scope),
        "http.response.status_code": status,
        "parlance.outcome": str(outcome),
    }
    if exchange.service.observation.has_access_log:
        _log(exchange, about)
    if exchange.scope and exchange.timings.spans:
        _record(exchange, exchange.timings.spans, about, ended_s, has_failed=outcome is Outcome.FAILED)


def remember(exchange: Exchange, scope: Scope, status: int, outcome: Outcome) -> None:
    """Leaves what the console makes a record of: of requests with a key, but for those of the console itself."""
    if (console := exchange.service.console) and exchange.caller and not scope["path"].startswith(CONSOLE_PATHS):
        ended = FinishedRequest(
            exchange.request_id,
            exchange.caller,
            scope["method"],
            _route(scope),
            exchange.model.id if exchange.model else None,
            status,
            outcome,
            exchange.fault.code if exchange.fault else None,
            exchange.timings,
            exchange.reservations,
            time.perf_counter() - exchange.started_s,
            time.time(),
        )
        console.ended.append(ended)


def _route(scope: Scope) -> str:
    """The template of the path, which holds nothing of a client's."""
    template: str = scope["path"] if "short_way" in scope else getattr(scope.get("route"), "path", NO_ROUTE)
    return template


def _log(exchange: Exchange, about: dict[str, Any]) -> None:
    parts = {name: round(seconds, 6) for name, seconds in exchange.parts().items()}
    model = exchange.model.id if exchange.model else NO_MODEL
    times = ", ".join(f"{name} {seconds * 1000:.1f}" for name, seconds in parts.items())
    line = " ".join(str(value) for value in about.values())
    fields = {"parlance.model": model} | {f"parlance.{name}_s": seconds for name, seconds in parts.items()}
    log.info("%s %s, ms: %s", line, model, times, extra=about | fields)


def _record(exchange: Exchange, spans: StageSpans, about: dict[str, Any], ended_s: float, *, has_failed: bool) -> None:
    tracer, stages = exchange.service.observation.tracer, exchange.timings.stages
    assert tracer
    assert stages
    attributes = about | dict(_generation(exchange, about)) | {"parlance.request_id": exchange.request_id}
    name = " ".join(filter(None, (attributes["gen_ai.operation.name"], attributes.get("gen_ai.request.model"))))
    operation = spans.operation
    tracer.record(
        operation,
        spans.parent,
        name,
        exchange.started_s,
        ended_s,
        attributes,
        is_of_server=True,
        has_failed=has_failed,
        link=spans.link,
    )
    ends = [entry.began_s for entry in stages[1:]] + [ended_s]
    for number, (entry, end_s) in enumerate(zip(stages, ends, strict=True)):
        span, engine = spans.of_stage(number), {"parlance.engine": entry.engine} if entry.engine else {}
        tracer.record(span, operation, str(entry.stage), entry.began_s, end_s, engine)
        if entry.loading:
            for phase, from_s, to_s in entry.loading.phases(entry.began_s, end_s):
                way = {"parlance.way": entry.loading.way} if phase == LOAD_PROCESS else {}
                tracer.record(span.child(), span, phase, from_s, to_s, engine | way)


def _generation(exchange: Exchange, about: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Attributes of the convention for generative AI."""
    assert exchange.scope
    route = about["http.route"].removeprefix("/v1")
    yield "gen_ai.operation.name", ROUTE_OPERATIONS.get(route) or OPERATIONS.get(exchange.scope, str(exchange.scope))
    yield "gen_ai.provider.name", "parlance"
    if exchange.model:
        yield "gen_ai.request.model", exchange.model.id
    if exchange.fault:
        yield "error.type", exchange.fault.code
    elif about["parlance.outcome"] == Outcome.LEFT:
        yield "error.type", CANCELLED
    used: dict[str, int] = {}
    for bill in exchange.reservations:
        for unit, amount in (bill.used.quantities or {}).items():
            used[unit] = used.get(unit, 0) + amount
    if used:
        yield "gen_ai.response.model", exchange.reservations[0].entry.model
    for unit, amount in used.items():
        cached = used.get("cached_input_tokens", 0) if unit == "input_tokens" else 0
        yield USAGE.get(unit, f"{USAGE_PREFIX}{unit}"), amount + cached
