"""Clients without a key or from elsewhere: rates, other origins, addresses, and the names that they give requests."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

import httpx
import pytest
from starlette.requests import Request

from autoscaling.engine import CallContext
from autoscaling.observation import Observation
from contract.limits import KEYLESS_REQUESTS
from contract.tracing import NAMES, RequestNames
from deployments.ingress.app import build_app
from deployments.ingress.context import Exchange, Service
from deployments.ingress.deployment import IngressArgs
from deployments.ingress.front.origins import client_network
from deployments.ingress.front.proxies import Proxies
from deployments.ingress.wire.addresses import public_address
from deployments.ingress.wire.openapi import written
from state import State, keys
from tests.api.conftest import Api, client_of
from tests.api.test_traces import CALLER, CHAT, TRACE_ID
from tests.api.uploads import SOUND, WEBM, ticket_of
from tests.catalogs import behaving

pytestmark = pytest.mark.usefixtures("one_window")

DOCUMENT = "/openapi.json"
SAMPLE = "/v1/audio/voices/M1/samples/fr.mp3"
KEPT = "samples/obedient/M1-fr.mp3"
SEARCH = "/v1/mcp/docs/mcp"
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}

At = Callable[[str], httpx.AsyncClient]


@pytest.fixture
def at(api: Api) -> At:
    """Clients of other addresses than that of `api.client`."""
    return lambda address: client_of(api.service, client=(address, 1))


def refused(reply: httpx.Response) -> None:
    assert (reply.status_code, reply.json()["error"]["code"]) == (429, "rate_limit_exceeded"), reply.text
    assert reply.headers["retry-after"] == reply.headers["x-ratelimit-reset"]
    assert (reply.headers["x-ratelimit-limit"], reply.headers["x-ratelimit-remaining"]) == (str(KEYLESS_REQUESTS), "0")


@pytest.mark.parametrize(("method", "path"), [("GET", DOCUMENT), ("GET", SAMPLE), ("POST", SEARCH)])
async def test_what_needs_no_key_has_a_rate_for_each_network(api: Api, at: At, method: str, path: str) -> None:
    body = LIST if method == "POST" else None
    for left in range(KEYLESS_REQUESTS - 1, -1, -1):
        reply = await api.client.request(method, path, json=body)
        assert (reply.status_code, reply.headers["x-ratelimit-remaining"]) == (200, str(left))
    refused(await api.client.request(method, path, json=body))
    refused(await api.client.post(SEARCH, json=LIST))
    async with at("192.0.2.1") as elsewhere:
        assert (await elsewhere.request(method, path, json=body)).status_code == 200
    assert (await api.client.get("/healthz")).status_code == 200
    assert (await api.send("GET", SAMPLE)).status_code == 200


async def test_a_sample_that_was_played_is_kept_in_memory(api: Api) -> None:
    await api.state.blobs.put(KEPT, b"first")
    assert (await api.client.get(SAMPLE)).content == b"first"
    await api.state.blobs.put(KEPT, b"second")
    assert (await api.client.get(SAMPLE)).content == b"first"


async def test_the_document_is_written_once(api: Api) -> None:
    first = await api.client.get(DOCUMENT)
    app = build_app(api.service)
    assert written(app) == first.content
    app.openapi_schema["paths"].clear()  # type: ignore[index]  # it has been made by now
    assert written(app) == first.content
    assert (first.headers["content-type"], bool(first.json()["paths"])) == ("application/json", True)


async def test_wrong_keys_of_a_network_are_429_beyond_its_rate_and_right_ones_never(api: Api, at: At) -> None:
    async def wrong(client: httpx.AsyncClient) -> httpx.Response:
        return await client.get("/v1/me", headers={"authorization": f"Bearer {keys.mint().text}"})

    for _ in range(KEYLESS_REQUESTS):
        assert (await wrong(api.client)).status_code == 401
    refused(await wrong(api.client))
    assert (await api.send("GET", "/v1/me")).status_code == 200
    assert (await api.send("GET", "/v1/me", await api.key())).status_code == 200, "a key that was not seen yet"
    assert (await api.client.post(SEARCH, json=LIST)).status_code == 200, "who sends no key is counted by himself"
    async with at("192.0.2.1") as elsewhere:
        assert (await wrong(elsewhere)).status_code == 401


INSIDE = {"PARLANCE_PROXIES": "10.0.0.0/8 ::1"}
HAPROXY = {"PARLANCE_HAPROXY": "/bin/haproxy"}


def network(peer: str | None, *forwarded: str, environment: Mapping[str, str]) -> str:
    """`forwarded` are lines of X-Forwarded-For."""
    service = Service(behaving(), {}, cast(State, None), proxies=Proxies.of_environment(environment))
    scope: dict[str, Any] = {
        "type": "http",
        "headers": [(b"x-forwarded-for", line.encode()) for line in forwarded],
        "client": (peer, 1) if peer else None,
        "exchange": Exchange(service),
    }
    return client_network(Request(scope))


NETWORKS: list[tuple[str | None, tuple[str, ...], Mapping[str, str], str]] = [
    # What proxies have added is believed, up to the first address that is none of theirs.
    ("192.0.2.1", (), INSIDE, "192.0.2.1"),
    ("192.0.2.1", ("203.0.113.5",), INSIDE, "192.0.2.1"),
    ("10.0.0.1", ("192.0.2.9",), INSIDE, "192.0.2.9"),
    ("10.0.0.1", ("203.0.113.5, 192.0.2.9",), INSIDE, "192.0.2.9"),
    ("10.0.0.1", ("203.0.113.5", "192.0.2.9"), INSIDE, "192.0.2.9"),
    ("10.0.0.1", ("203.0.113.5, 192.0.2.9", "10.0.0.7"), INSIDE, "192.0.2.9"),
    ("10.0.0.1", ("10.0.0.7",), INSIDE, "10.0.0.7"),
    ("10.0.0.1", (), INSIDE, "10.0.0.1"),
    ("10.0.0.1", (" , ,",), INSIDE, "10.0.0.1"),
    ("::ffff:10.0.0.1", ("192.0.2.9",), INSIDE, "192.0.2.9"),
    ("::1", ("192.0.2.9",), INSIDE, "192.0.2.9"),
    ("10.0.0.1", ("203.0.113.5, unknown",), INSIDE, "nowhere"),
    # Behind HAProxy the last entry is its client.
    ("172.16.0.1", ("192.0.2.9",), INSIDE | HAPROXY, "192.0.2.9"),
    ("172.16.0.1", ("203.0.113.5", "192.0.2.9"), INSIDE | HAPROXY, "192.0.2.9"),
    ("172.16.0.1", ("192.0.2.9", "10.0.0.7"), INSIDE | HAPROXY, "192.0.2.9"),
    ("172.16.0.1", (), INSIDE | HAPROXY, "172.16.0.1"),
    # Nothing is a proxy unless it is named, not even loopback.
    *(("127.0.0.1", ("192.0.2.9", "127.0.0.1"), environment, "127.0.0.1") for environment in ({}, HAPROXY)),
    # A network of IPv6 is one client.
    ("2001:db8:1:2:3:4:5:6", (), INSIDE, "2001:db8:1:2::/64"),
    ("2001:db8:1:2:ffff::", (), INSIDE, "2001:db8:1:2::/64"),
    ("2001:db8:1:3::1", (), INSIDE, "2001:db8:1:3::/64"),
    ("::ffff:192.0.2.9", (), INSIDE, "192.0.2.9"),
    ("unknown", (), INSIDE, "nowhere"),
    (None, (), INSIDE, "nowhere"),
]
"""Peer, lines of X-Forwarded-For, environment, and the network that the request counts for."""


def test_a_request_counts_for_the_network_of_its_client() -> None:
    assert [network(peer, *lines, environment=given) for peer, lines, given, _ in NETWORKS] == [n[-1] for n in NETWORKS]


def test_what_is_no_address_stops_the_start() -> None:
    with pytest.raises(ValueError, match=r"proxy\.example"):
        Proxies.of_environment({"PARLANCE_PROXIES": "proxy.example"})


async def test_behind_a_proxy_addresses_say_https_and_keep_its_path_and_else_are_those_of_the_request(api: Api) -> None:
    ticket = await ticket_of(api.changed("http://10.0.0.7:8000"))
    assert ticket["upload_url"].startswith("http://10.0.0.7:8000/files/uploads/upl_")
    public = "https://api.example.org/voice"
    behind = api.changed("http://10.0.0.7:8000", public_url=public)
    ticket = await ticket_of(behind)
    assert ticket["upload_url"].startswith(f"{public}/files/uploads/upl_")
    # The proxy cuts its path off.
    inside = ticket["upload_url"].removeprefix(public)
    assert (await behind.client.put(inside, content=SOUND, headers=WEBM)).status_code == 200


def test_public_addresses() -> None:
    here = ("http://127.0.0.1:8000", "https://[::1]:8443/a/b")
    for address in ("https://api.example.org", "https://api.example.org/voice", *here):
        assert [public_address(told) for told in (address, f"{address}/")] == [address, address]
    for told in (
        *("", "api.example.org", "//api.example.org", "ftp://api.example.org", "https://", "https:///voice"),
        *("https://a.org?x=1", "https://a.org/?", "https://a.org/#x", "https://me:secret@a.org", "https://a.org:port"),
        *("https://a b.org", "https://a.org/\n", "https://a.org/\x00", "https://ä.org", "https://a.org\\b"),
    ):
        with pytest.raises(ValueError, match="not a public address"):
            public_address(told)


def test_the_environment_comes_before_the_config_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARLANCE_PUBLIC_URL", raising=False)
    assert IngressArgs().reached_at() is None
    told = IngressArgs(public_url="https://file.example.org/")
    assert told.reached_at() == "https://file.example.org"
    monkeypatch.setenv("PARLANCE_PUBLIC_URL", "https://environment.example.org/voice/")
    assert told.reached_at() == "https://environment.example.org/voice"
    monkeypatch.setenv("PARLANCE_PUBLIC_URL", "environment")
    with pytest.raises(ValueError, match="not a public address"):
        told.reached_at()
    with pytest.raises(ValueError, match="not a public address"):
        IngressArgs(public_url="file.example.org")


class Seen:
    """Fields that the engine of a chat gets beside its job."""

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
    with caplog.at_level(logging.INFO, "parlance"):
        await api.send("POST", "/v1/chat/completions", headers={"traceparent": CALLER}, json=CHAT)
    ours = "parlance.deployments.ingress"
    assert [record for record in caplog.records if record.name.startswith(ours)] == [], "not without the switch"
    caplog.clear()
    api = api.changed(observation=Observation(has_access_log=True))
    with caplog.at_level(logging.INFO, f"{ours}.traces"):
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
    parts_s = [fields[0][f"parlance.{part}_s"] for part in ("gateway", "queue", "load", "engine")]
    assert 1000 * sum(parts_s) >= total_ms - 1
    assert fields[0]["message"].startswith("POST /v1/chat/completions 200 ok obedient, ms: gateway ")
    assert "umbrella" not in caplog.text


async def test_with_lines_of_json_an_engine_knows_the_request(api: Api) -> None:
    api = api.changed(observation=Observation(has_json_logs=True))
    seen = Seen(api)
    reply = await api.chat()
    assert seen.context.carried == (RequestNames(reply.headers["x-request-id"]),)
    assert "traceparent" not in reply.headers
