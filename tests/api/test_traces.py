"""What the trace of a request tells: its operation, its stages, the engine's own span; never a word of a client's."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_network
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from autoscaling.observation import Observation
from autoscaling.tracing import Tracer
from contract.access import Scope
from contract.telemetry import Outcome
from contract.tracing import INFERENCE, LOAD_PHASES, USAGE_PREFIX, Loading, Stage, incoming
from deployments.ingress import traces
from deployments.ingress.context import Exchange
from deployments.ingress.front.proxies import Proxies
from state import State
from tests.api.asgi import Answer, ask, http_scope
from tests.api.conftest import Api, app_over, serving
from tests.api.engines import local_engines
from tests.catalogs import behaving, chat
from tests.docs.pages import ROOT, rows
from tests.waiting import until

PAGE = ROOT / "docs/tracing-and-logs.md"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"
CALLER = f"00-{TRACE_ID}-{PARENT_ID}-01"
STAGES = ["admission", "queue", "engine", "settle"]

BAD = {
    "empty": b"",
    "malformed": b"hello",
    "no trace": f"00-{'0' * 32}-{PARENT_ID}-01".encode(),
    "no span": f"00-{TRACE_ID}-{'0' * 16}-01".encode(),
    "version ff": b"ff" + CALLER[2:].encode(),
    "version 0": CALLER[1:].encode(),
    "upper case": CALLER.upper().encode(),
    "more than version 00 has": CALLER.encode() + b"-more",
    "short": CALLER[:-1].encode(),
    "two in one": CALLER.encode() + b", " + CALLER.encode(),
    "no ASCII": CALLER.encode().replace(b"4b", "é".encode()),
    "lines": CALLER.encode() + b"\n",
    "10 MB": b"0" * 10_000_000,
    "10 MB of a later version": b"01" + CALLER[2:].encode() + b"-" + b"0" * 10_000_000,
}

CHAT = {"model": "obedient", "messages": [{"role": "user", "content": "say hello"}]}


class Traced:
    """The app whose spans are in memory, ingress and engines alike."""

    def __init__(self, api: Api, tracer: Tracer, exporter: InMemorySpanExporter) -> None:
        self.api, self._tracer, self._exporter = api, tracer, exporter

    def spans(self) -> list[ReadableSpan]:
        """Those of the requests so far."""
        self._tracer._processor.force_flush()
        return list(self._exporter.get_finished_spans())

    def operation(self) -> ReadableSpan:
        """The one operation."""
        (span,) = [span for span in self.spans() if "gen_ai.operation.name" in (span.attributes or {})]
        return span

    def attributes(self) -> Mapping[str, Any]:
        """Those of the one operation."""
        return self.operation().attributes or {}


@asynccontextmanager
async def traced_api(state: State, *, is_proxied: bool = True) -> AsyncIterator[Traced]:
    exporter = InMemorySpanExporter()
    tracer = Tracer(exporter, "ingress", lambda count: None)
    catalog = behaving(obedient=chat("obedient"))
    engines: dict[str, Any] = local_engines(catalog)
    for engine in engines.values():
        engine.handle.replica._observation = Observation(tracer)
    options: dict[str, Any] = {"proxies": Proxies((ip_network("0.0.0.0/0"),))} if is_proxied else {}
    async with serving(catalog, state, engines=engines, observation=Observation(tracer), **options) as api:
        yield Traced(api, tracer, exporter)
    tracer.close()


@pytest.fixture
async def traced(state: State) -> AsyncIterator[Traced]:
    async with traced_api(state) as traced:
        yield traced


def span_id(span: ReadableSpan) -> int:
    assert span.context
    return int(span.context.span_id)


def parent_id(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def seconds(span: ReadableSpan) -> float:
    assert span.start_time
    assert span.end_time
    return (span.end_time - span.start_time) / 1e9


async def sent(api: Api, *headers: tuple[bytes, bytes]) -> Answer:
    """A chat with just these headers beside the key."""
    body = json.dumps(CHAT).encode()
    key = (b"authorization", f"Bearer {api.everything}".encode())
    return await ask(app_over(api.service), "POST", "/v1/chat/completions", [key, *headers], body)


async def test_without_tracing_a_trace_is_given_back_as_it_came_without_a_malformed_tracestate(api: Api) -> None:
    malformed = (b"no member", b"A=1", b"a=" + b"x" * 1000, "a=é".encode(), b"a=1\n")
    for states, back in (((b"a=1", b"b=2"), "a=1,b=2"), *(((state,), None) for state in malformed)):
        reply = await sent(api, (b"traceparent", CALLER.encode()), *((b"tracestate", state) for state in states))
        assert (reply.headers["traceparent"], reply.headers.get("tracestate")) == (CALLER, back), states


async def test_without_tracing_no_trace_begins(api: Api) -> None:
    assert not {"traceparent", "tracestate"} & (await sent(api)).headers.keys()
    reply = await api.send("GET", "/v1/nothing-here", headers={"tracestate": "a=1"})
    assert not {"traceparent", "tracestate"} & reply.headers.keys()


async def test_a_refusal_gives_its_trace_back(api: Api) -> None:
    reply = await api.send("POST", "/v1/chat/completions", key="wrong", headers={"traceparent": CALLER}, json={})
    assert (reply.status_code, reply.headers["traceparent"]) == (401, CALLER)


def test_without_tracing_nothing_of_it_is_imported() -> None:
    script = (
        "import deployments.ingress.app, deployments.replicas, sys;"
        "print([m for m in sys.modules if m.startswith(('opentelemetry.exporter.otlp', 'autoscaling.tracing'))])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_is_one_operation_with_its_stages(traced: Traced, stream: bool) -> None:
    reply = await traced.api.chat("say umbrella", stream=stream, user="umbrella")
    assert reply.status_code == 200
    operation, spans = traced.operation(), traced.spans()
    assert operation.name == "chat obedient"
    assert operation.parent is None
    assert dict(operation.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "parlance.outcome": "ok",
        "parlance.request_id": reply.headers["x-request-id"],
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "parlance",
        "gen_ai.request.model": "obedient",
        "gen_ai.response.model": "obedient",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 2 if stream else 3,
    }
    children = [span for span in spans if parent_id(span) == span_id(operation)]
    assert [span.name for span in children] == STAGES
    (inference,) = [span for span in spans if span.name == INFERENCE]
    assert parent_id(inference) == span_id(children[STAGES.index("engine")])
    assert len(spans) == len(children) + 2
    assert "umbrella" not in "".join(span.to_json() for span in spans)


async def test_stages_are_the_time_of_their_operation(traced: Traced) -> None:
    await traced.api.chat("stream 20 0.001", stream=True)
    operation = traced.operation()
    children = [span for span in traced.spans() if parent_id(span) == span_id(operation)]
    assert sum(map(seconds, children)) == pytest.approx(seconds(operation), rel=0.01)
    assert max(children, key=seconds).name == Stage.ENGINE


async def test_a_trace_goes_on_and_names_the_operation_in_the_reply(traced: Traced) -> None:
    reply = await sent(traced.api, (b"traceparent", CALLER.encode()), (b"tracestate", b"vendor=1"))
    operation = traced.operation()
    assert reply.headers["traceparent"] == f"00-{TRACE_ID}-{span_id(operation):016x}-01"
    assert reply.headers["tracestate"] == "vendor=1"
    assert parent_id(operation) == int(PARENT_ID, 16)
    assert {f"{span.context.trace_id:032x}" for span in traced.spans() if span.context} == {TRACE_ID}


async def test_what_is_no_traceparent_begins_a_trace_and_of_two_none_counts(traced: Traced) -> None:
    sent_values = {name: [value] for name, value in BAD.items()} | {"two": [CALLER.encode()] * 2}
    for name, values in sent_values.items():
        reply = await sent(traced.api, *((b"traceparent", value) for value in values))
        begun = incoming([(b"traceparent", reply.headers["traceparent"].encode())])
        assert (reply.status, bool(begun)) == (200, True), name
        assert begun
        assert begun.trace_id != TRACE_ID, name
    assert {span.parent for span in traced.spans() if span.name == "chat obedient"} == {None}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parent=st.binary(max_size=80) | st.just(CALLER.encode()),
    state=st.binary(max_size=80) | st.text("a=1, @\t", max_size=80).map(str.encode),
)
async def test_any_bytes_are_answered(traced: Traced, parent: bytes, state: bytes) -> None:
    reply = await sent(traced.api, (b"traceparent", parent), (b"tracestate", state))
    assert reply.status == 200
    assert incoming([(b"traceparent", reply.headers["traceparent"].encode())])


def test_a_tracestate_is_read_at_once_whatever_it_is() -> None:
    """Texts at which patterns with repetitions inside repetitions never end; a test that takes seconds has failed."""
    for state in (b" ," * 250, b"\t," * 200 + b"=", b"a=" + b" x" * 250, (b"a= b ," * 80) + b"\xff", b" " * 511 + b"="):
        assert incoming([(b"traceparent", CALLER.encode()), (b"tracestate", state)])


async def test_a_later_version_is_read_as_far_as_it_is_known_and_what_is_not_recorded_is_not(traced: Traced) -> None:
    for parent, end in ((CALLER.encode()[:-2] + b"00", "-00"), (b"cc" + CALLER[2:].encode() + b"-more", "-01")):
        reply = await sent(traced.api, (b"traceparent", parent))
        assert reply.headers["traceparent"].startswith(f"00-{TRACE_ID}-")
        assert reply.headers["traceparent"].endswith(end)
        assert (traced.spans() == []) == (end == "-00")


@pytest.mark.parametrize(("share", "is_recorded"), [("0", False), ("1", True)])
async def test_clients_choose_neither_what_is_recorded_nor_its_trace(
    state: State, monkeypatch: pytest.MonkeyPatch, share: str, is_recorded: bool
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", share)
    async with traced_api(state, is_proxied=False) as traced:
        for trace_id, flags in product((TRACE_ID, "0" * 31 + "1", "f" * 32), ("00", "01")):
            reply = await sent(traced.api, (b"traceparent", f"00-{trace_id}-{PARENT_ID}-{flags}".encode()))
            assert trace_id not in reply.headers["traceparent"]
            assert bool(traced.spans()) is is_recorded
            if is_recorded:
                operation = [span for span in traced.spans() if span.name == "chat obedient"][-1]
                (link,) = operation.links
                assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == (trace_id, PARENT_ID)
                assert operation.parent is None


async def test_of_the_traces_that_begin_here_a_share_is_recorded(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    async with traced_api(state) as traced:
        reply = await sent(traced.api)
        assert reply.headers["traceparent"].endswith("-02")  # a random id, not recorded
        assert traced.spans() == []
        await sent(traced.api, (b"traceparent", CALLER.encode()))
        assert traced.operation().name == "chat obedient"


async def test_what_is_no_operation_has_no_span(traced: Traced) -> None:
    for path in ("/healthz", "/v1/models", "/v1/nothing-here"):
        await traced.api.send("GET", path)
    assert traced.spans() == []


@pytest.mark.parametrize(
    ("text", "stream", "code", "is_error"),
    [
        ("fail", False, "upstream_error", True),
        ("stream 2 0 fail", True, "upstream_error", True),
        ("refuse", False, "invalid_request_error", False),
    ],
)
async def test_a_failure_is_named_by_its_code_and_only_the_operation_has_names_of_the_convention(
    traced: Traced, text: str, stream: bool, code: str, is_error: bool
) -> None:
    spans, known = ({name for name, _ in rows(PAGE, header)} for header in ("span", "attribute"))
    await traced.api.chat(text, stream=stream)
    operation = traced.operation()
    assert (operation.attributes or {})["error.type"] == code
    assert operation.status.is_ok is not is_error
    (inference,) = [span for span in traced.spans() if span.name == INFERENCE]
    assert (inference.attributes or {})["parlance.error"] == ("ValueError" if is_error else code)
    for span in traced.spans():
        attributes = span.attributes or {}
        if span is not operation:
            assert span.name in spans
            assert [name for name in attributes if not name.startswith("parlance.")] == []
        assert [n for n in attributes if n not in known and not n.startswith(USAGE_PREFIX)] == []


async def test_a_wrong_key_is_an_operation_that_ends_with_admission(traced: Traced) -> None:
    await traced.api.send("POST", "/v1/embeddings", key="wrong", json={})
    assert traced.attributes()["error.type"] == "invalid_api_key"
    assert traced.operation().name == "embeddings"
    assert [span.name for span in traced.spans() if span is not traced.operation()] == ["admission"]


async def test_a_client_that_leaves_ends_its_spans(traced: Traced) -> None:
    leaving = asyncio.create_task(traced.api.chat("stream 1000 0.01", stream=True))
    await until(lambda: traced.api.service.engines["chat-obedient"].view().used)
    leaving.cancel()
    await until(lambda: not traced.api.service.concurrency.requests)
    await until(lambda: any("gen_ai.operation.name" in (span.attributes or {}) for span in traced.spans()))
    assert traced.attributes()["error.type"] == "cancelled"
    await until(lambda: INFERENCE in {span.name for span in traced.spans()})


async def test_plain_prompts_are_another_operation(traced: Traced) -> None:
    reply = await traced.api.send("POST", "/v1/completions", json={"model": "obedient", "prompt": "say hello"})
    assert reply.status_code == 200
    assert traced.attributes()["gen_ai.operation.name"] == "text_completion"


async def test_what_is_billed_by_other_units_says_so(traced: Traced) -> None:
    reply = await traced.api.send("POST", "/v1/audio/speech", json={"input": "Hello.", "voice": "default-en"})
    assert reply.status_code == 200
    assert traced.attributes()["gen_ai.operation.name"] == "text_to_speech"
    assert traced.attributes()[f"{USAGE_PREFIX}characters"] == 6
    assert [name for name in traced.attributes() if name.startswith("gen_ai.usage.")] == []


async def test_a_load_has_phases_where_its_replica_has_told_them_and_else_none(traced: Traced) -> None:
    trace_of_load(traced, None)
    assert set(LOAD_PHASES) & {span.name for span in traced.spans()} == set()
    assert "load" in {span.name for span in traced.spans()}
    trace_of_load(traced, Loading(1800.0, 3600.0, 600.0, "fork"))
    spans = {span.name: span for span in traced.spans()}
    phases = [spans[name] for name in LOAD_PHASES]
    assert {parent_id(phase) for phase in phases} == {span_id(spans["load"])}
    assert sum(map(seconds, phases)) == pytest.approx(seconds(spans["load"]))
    assert [dict(phase.attributes or {}).get("parlance.way") for phase in phases] == [None, "fork", None, None]


def trace_of_load(traced: Traced, loading: Loading | None) -> None:
    """Tells of a request that waited for a cold engine."""
    exchange = Exchange(traced.api.service, scope=Scope.CHAT)
    traces.begin(exchange, http_scope("GET", "/", []), [])
    exchange.timings.enter(Stage.QUEUE, "chat-obedient")
    exchange.timings.enter(Stage.LOAD, "chat-obedient")
    exchange.timings.loaded(loading)
    traces.end(exchange, {"method": "POST", "path": "/", "short_way": True}, 200, Outcome.OK)
