"""Web pages of other origins: which may call, what they may read, and that nobody else learns anything of it."""

from itertools import product
from typing import Any

import httpx
import pytest

from contract.access import Scope
from deployments.ingress.deployment import IngressArgs
from deployments.ingress.front.concurrency import ConcurrencyLimits
from deployments.ingress.front.cors import listed_origins
from tests.api.conftest import Api
from tests.api.operations import OPEN, OPERATIONS

PAGE = "https://app.example.org"
FOREIGN = "https://evil.example.net"
ASKS = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}


def page_of(api: Api, *allowed: str, **changes: Any) -> httpx.AsyncClient:
    """A client of the same service, with a list of origins."""
    return api.changed("http://127.0.0.1", allowed_origins=listed_origins(allowed), **changes).client


def cors(reply: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in reply.headers.items() if name.startswith("access-control-")}


async def test_a_preflight_needs_no_key_on_any_path(api: Api) -> None:
    page = page_of(api, PAGE)
    opened = {path.format(slug="F1", language="en", name="x", path="x") for path in OPEN}
    for path in opened | {operation.path for operation in OPERATIONS}:
        reply = await page.options(path, headers=ASKS)
        assert (reply.status_code, reply.content) == (204, b"")
        assert reply.headers["access-control-allow-origin"] == PAGE
        assert reply.headers["access-control-allow-headers"] == "authorization"
        assert reply.headers["access-control-max-age"] == "7200"
        assert set(reply.headers["access-control-allow-methods"].split(", ")) == {"GET", "POST", "PUT", "DELETE"}
        assert "access-control-allow-credentials" not in reply.headers
        assert reply.headers["vary"] == "Origin"
        assert reply.headers["x-request-id"]


async def test_a_page_reads_the_answer_and_every_header_of_ours(api: Api) -> None:
    headers = {"authorization": f"Bearer {api.everything}", "origin": PAGE}
    page = page_of(api, PAGE)
    reply = await page.post("/v1/audio/speech", headers=headers, json={"input": "hello", "voice": "F1"})
    assert reply.status_code == 200
    assert (reply.headers["access-control-allow-origin"], reply.headers["vary"]) == (PAGE, "Origin")
    exposed = set(reply.headers["access-control-expose-headers"].split(", "))
    assert exposed >= {
        "x-request-id", "server-timing", "ratelimit", "ratelimit-policy", "x-ratelimit-remaining",
        "x-service-model-served", "x-voice",
    }  # fmt: skip


async def test_a_foreign_page_gets_no_header_of_cors(api: Api) -> None:
    page, http = page_of(api, PAGE), PAGE.replace("https", "http")
    strange = (FOREIGN, "null", f"{PAGE}.evil.net", f"{PAGE}:444", http, f"{PAGE}, {PAGE}", "")
    for origin, (method, status) in product(strange, (("OPTIONS", 405), ("GET", 401))):
        reply = await page.request(method, "/v1/models", headers=ASKS | {"origin": origin})
        assert (reply.status_code, cors(reply), reply.headers["vary"]) == (status, {}, "Origin"), origin


async def test_a_reply_without_an_origin_varies_so_that_no_cache_gives_it_to_a_page(api: Api) -> None:
    reply = await page_of(api, PAGE).get("/v1/audio/voices/M1/samples/en.mp3")
    assert (reply.status_code, reply.headers["vary"], cors(reply)) == (200, "Origin", {})


async def test_without_a_list_nothing_is_different(api: Api) -> None:
    page = page_of(api)
    preflight = await page.options("/v1/models", headers=ASKS)
    reply = await page.get("/v1/models", headers={"origin": PAGE})
    assert (preflight.status_code, reply.status_code) == (405, 401)
    assert cors(preflight) == cors(reply) == {}
    assert "vary" not in reply.headers


async def test_any_origin_may_be_allowed_and_never_with_credentials(api: Api) -> None:
    page = page_of(api, "*")
    for origin in (PAGE, FOREIGN, "null"):
        preflight = await page.options("/v1/models", headers=ASKS | {"origin": origin})
        reply = await page.get("/v1/models", headers={"origin": origin})
        assert (preflight.status_code, reply.status_code) == (204, 401)
        assert preflight.headers["access-control-allow-origin"] == "*" == reply.headers["access-control-allow-origin"]
        assert "access-control-allow-credentials" not in {**preflight.headers, **reply.headers}


@pytest.mark.parametrize(
    ("case", "status"),
    [("key", 401), ("scope", 403), ("path", 404), ("method", 405), ("length", 413), ("rate", 429), ("bug", 500)],
)
async def test_errors_can_be_read_by_an_allowed_page(
    api: Api, monkeypatch: pytest.MonkeyPatch, case: str, status: int
) -> None:
    method, path, headers = "GET", "/v1/models", {"origin": PAGE, "authorization": f"Bearer {api.everything}"}
    match case:
        case "key":
            del headers["authorization"]
        case "scope":
            method, path = "POST", "/v1/embeddings"
            headers["authorization"] = f"Bearer {await api.key(Scope.CHAT)}"
        case "path":
            path = "/v1/nothing"
        case "method":
            method = "PATCH"
        case "length":
            method, path, headers["content-length"] = "POST", "/v1/embeddings", str(10**9)
        case "rate":
            caller = await api.caller()
            while (await api.state.rates.hit(caller)).allowed:
                pass
        case "bug":
            monkeypatch.setattr(api.state.rates, "hit", None)
    reply = await page_of(api, PAGE).request(method, path, headers=headers)
    assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (status, PAGE)
    exposed = reply.headers["access-control-expose-headers"].split(", ")
    assert {"x-request-id", *(("retry-after",) if status == 429 else ())} <= set(exposed)


async def test_preflights_count_among_the_requests_under_way(api: Api) -> None:
    for most, status in ((0, 503), (1, 204)):
        budgets = ConcurrencyLimits(most)
        reply = await page_of(api, PAGE, concurrency=budgets).options("/v1/models", headers=ASKS)
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (status, PAGE)
        assert budgets.requests == 0


async def test_headers_are_repeated_where_they_are_names(api: Api) -> None:
    names = ["x-stainless-os, x-api-key", ", ".join(["x"] * 64)]
    page = page_of(api, PAGE)
    for asked in (*names, "x y", "x,,y", "x;y", ", ".join(["x"] * 65), "x" * 65):
        reply = await page.options("/v1/models", headers=ASKS | {"access-control-request-headers": asked})
        assert reply.headers.get("access-control-allow-headers") == (asked if asked in names else None)


async def test_tools_over_mcp_take_the_same_pages(api: Api) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    page = page_of(api, PAGE)
    for origin, status in ((PAGE, 200), (FOREIGN, 403)):
        headers = {"authorization": f"Bearer {api.everything}", "origin": origin}
        reply = await page.post("/v1/mcp/mcp", headers=headers, json=body)
        assert reply.status_code == status
        assert ("access-control-allow-origin" in reply.headers) == (origin == PAGE)


def test_what_no_browser_sends_stops_the_start() -> None:
    no_origins = (
        *(f"{PAGE}/", f"{PAGE}/path", f"{PAGE}:443", f"{PAGE}\r\nx: y"),
        *("app.example.org", "null", "http://localhost:80", "https://*.example.org", ""),
    )
    for told in (*([origin] for origin in no_origins), ["*", PAGE]):
        with pytest.raises(ValueError, match=r"origin|port"):
            IngressArgs(allowed_origins=told)


def test_origins_of_apps_and_addresses_are_taken_in_any_case() -> None:
    told = ["HTTPS://App.Example.org", "http://localhost:3000", "http://[::1]:8080", "capacitor://localhost"]
    assert IngressArgs(allowed_origins=told).allowed_origins == {one.lower() for one in told}
