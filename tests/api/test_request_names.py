"""What engines and logs know of a request: its ids, where somebody wants them, and a line for each, if that is on."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from autoscaling.engine import CallContext
from autoscaling.observation import Observation
from contract.tracing import NAMES, RequestNames
from tests.api.conftest import Api
from tests.api.test_traces import CALLER, CHAT, TRACE_ID

PARTS = ("gateway", "queue", "load", "engine")


class Seen:
    """What the engine of a chat sees beside its job."""

    def __init__(self, api: Api) -> None:
        NAMES.set(None)  # tests share a context, which requests in Serve do not
        engine = api.engine()
        self._call, engine.call = engine.call, self._seen  # type: ignore[method-assign]

    async def _seen(self, method: Any, job: Any, *, context: CallContext) -> Any:
        self.context, self.names = context, NAMES.get()
        return await self._call(method, job, context=context)


async def test_without_tracing_nothing_is_made_for_it(api: Api) -> None:
    api = api.changed(console=None)
    seen = Seen(api)
    await api.chat()
    assert (seen.context.names, seen.context.timings.stages, seen.context.carried, seen.names) == (None, None, (), None)


async def test_without_tracing_logs_and_engines_know_the_trace_of_a_client(api: Api) -> None:
    seen = Seen(api)
    reply = await api.send("POST", "/v1/chat/completions", headers={"traceparent": CALLER}, json=CHAT)
    assert seen.names
    assert seen.names.request_id == reply.headers["x-request-id"]
    assert seen.names.span
    assert seen.names.span.trace_id == TRACE_ID
    assert seen.context.carried == (seen.names,)
    assert seen.context.timings.spans is None


async def test_a_line_for_each_request_names_its_route_and_never_its_path(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    api = api.changed(observation=Observation(has_access_log=True))
    with caplog.at_level(logging.INFO, "parlance.deployments.ingress.traces"):
        reply = await api.chat("say umbrella")
        await api.send("GET", "/v1/models/obedient")
        await api.send("GET", "/v1/umbrella")
        await api.send("POST", "/v1/embeddings", key="umbrella", json={})
    fields: list[dict[str, Any]] = [vars(record) for record in caplog.records]
    assert [(line["http.route"], line["http.response.status_code"], line["parlance.outcome"]) for line in fields] == [
        ("/v1/chat/completions", 200, "ok"),
        ("/v1/models/{model_id:path}", 200, "ok"),
        ("none", 404, "refused"),
        ("/v1/embeddings", 401, "refused"),
    ]
    assert [line["parlance.model"] for line in fields] == ["obedient", "none", "none", "none"]
    total_ms = sum(float(part.partition("=")[2]) for part in reply.headers["server-timing"].split(", "))
    assert 1000 * sum(fields[0][f"parlance.{part}_s"] for part in PARTS) >= total_ms - 1
    assert fields[0]["message"].startswith("POST /v1/chat/completions 200 ok obedient, ms: gateway ")
    assert "umbrella" not in caplog.text


async def test_without_the_switch_no_request_is_a_line(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "parlance"):
        await api.send("POST", "/v1/chat/completions", headers={"traceparent": CALLER}, json=CHAT)
    assert [record for record in caplog.records if record.name.startswith("parlance.deployments.ingress")] == []


async def test_with_lines_of_json_an_engine_knows_the_request(api: Api) -> None:
    api = api.changed(observation=Observation(has_json_logs=True))
    seen = Seen(api)
    reply = await api.chat()
    assert seen.context.carried == (RequestNames(reply.headers["x-request-id"]),)
    assert "traceparent" not in reply.headers
