"""What is told of requests: how they ended, where their time went, what they cost; and never a word of a client's."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaling.metrics import Labels
from contract.errors import FAULTS
from contract.telemetry import (
    BODY_BYTES,
    CACHED_TOKENS,
    COST,
    ENGINE_STATE,
    FORK_SERVER,
    LEDGER_BACKLOG,
    LIVE_SESSIONS,
    NO_MODEL,
    OUTPUT_TOKEN,
    REFUSALS,
    REQUEST_DURATION,
    REQUEST_TIME,
    REQUESTS,
    SLOTS,
    STREAMS,
    UNITS,
    WAITING,
    WAITING_ORGANISATIONS,
    Metric,
    Outcome,
)
from deployments.ingress import report
from deployments.ingress.report import gauges, take_bills
from tests.api.conftest import Api
from tests.api.engines import scripted
from tests.scripted import Script
from tests.waiting import until


class Told:
    """Takes what is observed."""

    def __init__(self) -> None:
        self.values: list[tuple[Metric, Labels, float]] = []

    def __call__(self, metric: Metric, labels: Labels, value: float) -> None:
        assert len(labels) == len(metric.labels)
        self.values.append((metric, labels, value))

    def of(self, metric: Metric) -> list[Labels]:
        """Labels of what was told of it."""
        return [labels for told, labels, _ in self.values if told is metric]


@pytest.fixture
def told(api: Api) -> Told:
    """Whatever the service observes from now on."""
    api.service.metrics.observe = told = Told()
    return told


async def test_an_answer_is_ok_and_its_parts_add_up_to_its_time(api: Api, told: Told) -> None:
    assert (await api.chat()).status_code == 200
    ((metric, labels, seconds),) = told.values
    assert (metric, labels) == (REQUEST_DURATION, ("chat", "obedient", "ok"))
    totals = api.service.metrics.totals
    parts = {labels[1]: total for (metric, labels), total in totals.items() if metric is REQUEST_TIME}
    assert set(parts) == {"gateway", "queue", "load", "engine"}
    assert sum(parts.values()) == pytest.approx(seconds)
    assert parts["engine"] > 0


@pytest.mark.parametrize(
    ("text", "stream", "code", "outcome"),
    [
        ("fail", False, "upstream_error", Outcome.FAILED),
        ("stream 2 0 fail", True, "upstream_error", Outcome.FAILED),
        ("say hello", True, None, Outcome.OK),
    ],
)
async def test_how_a_request_ended_is_told_whatever_its_status_was(
    api: Api, told: Told, text: str, stream: bool, code: str | None, outcome: Outcome
) -> None:
    await api.chat(text, stream=stream)
    assert told.of(REQUEST_DURATION) == [("chat", "obedient", outcome)]
    assert refusals(api) == ({("obedient", code): 1} if code else {})


async def test_a_fault_of_our_own_is_no_refusal(api: Api, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.ingress.routes.chat.chat_headers", None)
    assert (await api.chat()).status_code == 500
    assert [outcome for *_, outcome in told.of(REQUEST_DURATION)] == [Outcome.FAILED]


async def test_a_refusal_is_counted_by_its_code(api: Api, told: Told) -> None:
    await api.send("POST", "/v1/chat/completions", json={"model": "nobody-has-it", "messages": []})
    await api.send("POST", "/v1/chat/completions", key="wrong", json={})
    await api.send("GET", "/v1/nothing-here")
    codes = ("invalid_request_error", "invalid_api_key", "not_found")
    assert refusals(api) == {(NO_MODEL, code): 1 for code in codes}
    assert told.of(REQUEST_DURATION) == [(route, NO_MODEL, "refused") for route in ("chat", "chat", NO_MODEL)]


async def test_a_failed_tool_is_no_success(api: Api, told: Told) -> None:
    call = {"name": "chat", "arguments": {"model": "obedient", "message": "fail"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    reply = await api.send("POST", "/v1/mcp/mcp", json=message, headers={"accept": "application/json"})
    assert reply.json()["result"]["isError"]
    assert told.of(REQUEST_DURATION) == [("mcp", "obedient", "failed")]


async def test_a_client_that_leaves_is_told_apart(api: Api, told: Told) -> None:
    leaving = asyncio.create_task(api.chat("stream 1000 0.01", stream=True))
    await until(lambda: api.engine().given > 2)
    leaving.cancel()
    await until(lambda: told.of(REQUEST_DURATION))
    assert told.of(REQUEST_DURATION) == [("chat", "obedient", "left")]


async def test_a_stream_tells_the_time_between_its_tokens(api: Api, told: Told) -> None:
    await api.chat("stream 5 0.02", stream=True)
    ((labels, seconds),) = [(labels, value) for metric, labels, value in told.values if metric is OUTPUT_TOKEN]
    assert labels == ("obedient",)
    assert seconds >= 0.02


async def test_what_was_billed_is_told_as_it_stands_in_the_book(api: Api) -> None:
    for _ in range(3):
        await api.chat()
    take_bills(api.service, api.service.metrics)
    take_bills(api.service, api.service.metrics)
    lines = await api.usage()
    totals = api.service.metrics.totals
    assert totals[COST, ("obedient",)] == sum(line.cost_micro_eur for line in lines) > 0
    for unit in ("input_tokens", "output_tokens"):
        assert totals[UNITS, ("obedient", unit)] == sum(line.quantities[unit] for line in lines) > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_prompt_had_in_the_cache_is_told_once(api: Api, stream: bool) -> None:
    scripted(api, Script(text="hello", cached_tokens=64))
    await api.chat(stream=stream)
    await api.chat(stream=stream)
    assert api.service.metrics.totals[CACHED_TOKENS, ("obedient",)] == 128


async def test_counters_send_what_they_have_gained(api: Api, told: Told) -> None:
    metrics = api.service.metrics
    metrics.totals[REFUSALS, ("m", "busy")] += 1
    metrics.totals[REFUSALS, ("m", "busy")] += 2
    metrics.export()
    metrics.export()
    metrics.totals[REFUSALS, ("m", "busy")] += 1
    metrics.export()
    assert [value for metric, _, value in told.values if metric is REFUSALS] == [3, 1]


async def test_every_engine_has_one_state_also_at_zero(api: Api) -> None:
    samples = list(gauges(api.service))
    engines = {model.deployment for model in api.service.catalog.deployed()}
    states = [(labels[0], value) for metric, labels, value in samples if metric is ENGINE_STATE]
    for engine in engines:
        assert sorted(value for name, value in states if name == engine) == [0, 0, 0, 0, 1]
    for row in (WAITING, WAITING_ORGANISATIONS, SLOTS):
        assert {labels[0] for metric, labels, _ in samples if metric is row} == engines
    held = {metric: value for metric, labels, value in samples if not labels}
    assert held == {REQUESTS: 0, STREAMS: 0, LIVE_SESSIONS: 0, BODY_BYTES: 0, LEDGER_BACKLOG: 0, FORK_SERVER: 0}


async def test_a_look_at_the_loop_is_one_at_the_engines_too(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.service.console
    monkeypatch.setattr(report, "LOOK_S", 0.0)
    await report.look(api.service)
    assert all(api.service.console.feed.past().values())


async def test_what_requests_hold_is_told_while_they_run(api: Api) -> None:
    streaming = asyncio.create_task(api.chat("stream 1000 0.01", stream=True))
    await until(lambda: api.engine().given > 0)
    held = {metric: value for metric, labels, value in gauges(api.service) if not labels}
    assert (held[REQUESTS], held[STREAMS]) == (1, 1)
    assert held[BODY_BYTES] > 0
    streaming.cancel()
    await until(lambda: not {m: v for m, labels, v in gauges(api.service) if not labels}[REQUESTS])


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    word=st.text(st.characters(codec="utf-8"), max_size=30),
    path=st.text("abc/%.", max_size=20).map(lambda path: path.lstrip("/")),
)
async def test_clients_make_no_series(api: Api, word: str, path: str) -> None:
    """Whatever they send as a model, a path, a key, a method or a header."""
    api.service.metrics.observe = told = Told()
    body = {"model": word, "messages": [{"role": "user", "content": word}]}
    await api.send("POST", "/v1/chat/completions", json=body)
    await api.send("POST", "/v1/audio/speech", json={"input": "x", "provider": word, "model": word, "voice": word})
    await api.send("POST", "/v1/mcp/mcp", json={"jsonrpc": "2.0", "id": word, "method": word, "params": {}})
    await api.send("GET", f"/v1/models/{path}")
    await api.client.request("BREW", "/" + path, headers={"x-tea": "green"})
    models = {model.id for model in api.service.catalog.models()} | {NO_MODEL}
    allowed = {
        "model": models,
        "outcome": set(Outcome),
        "code": {fault.code for fault in FAULTS.values()},
        "part": {"gateway", "queue", "load", "engine"},
    }
    series = [(metric, labels) for metric, labels, _ in told.values] + [*api.service.metrics.totals]
    for metric, labels in series:
        for name, value in zip(metric.labels, labels, strict=True):
            assert value in allowed.get(name, {value}), (metric.name, name)


def refusals(api: Api) -> dict[Labels, float]:
    return {labels: total for (metric, labels), total in api.service.metrics.totals.items() if metric is REFUSALS}
