"""What a key, an organisation and a process may hold at one time, tried at each bound and its neighbours."""

import asyncio
import json
import logging
import socket
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, nullcontext
from dataclasses import replace

import httpx
import pytest
import uvicorn

from contract.access import TARIFFS, Caller, RateOwner, Scope
from contract.errors import ApiError
from contract.limits import KEYLESS_AT_ONCE, MIB
from deployments.ingress.front import concurrency as budgets_module
from deployments.ingress.front import middleware
from deployments.ingress.front.concurrency import AnonymousClient, ConcurrencyLimits, Holder
from tests.api.conftest import Api, app_over, refused
from tests.engines import ObedientChat
from tests.waiting import cancelled, until

FREE = TARIFFS["free"].concurrent_streams * 4
HELD = {"model": "obedient", "messages": [{"role": "user", "content": "hold 30"}]}


def caller(org_id: int = 1, key_id: str = "one", streams: int = 4) -> Caller:
    return Caller(org_id, "acme", key_id, replace(TARIFFS["pro"], concurrent_streams=streams), frozenset(Scope))


def refusal(error: pytest.ExceptionInfo[ApiError]) -> tuple[int, str]:
    assert error.value.retry_after_s in {1, 2, 3}
    return error.value.fault.status, error.value.fault.code


async def hold(api: Api, key: str, count: int, **headers: str) -> list[asyncio.Task[httpx.Response]]:
    """So many requests that their engine holds."""
    before = api.service.concurrency.calls.total
    tasks = [
        asyncio.create_task(
            api.send("POST", "/v1/chat/completions", key, json=HELD, headers={n: f"{v}{i}" for n, v in headers.items()})
        )
        for i in range(count)
    ]
    await until(lambda: api.service.concurrency.calls.total >= before + count)
    return tasks


@pytest.mark.parametrize(("under_way", "status"), [(FREE - 1, 200), (FREE, 429)])
async def test_requests_of_a_key_under_way_are_bounded_for_every_route(api: Api, under_way: int, status: int) -> None:
    await api.organisation("small", "free")
    key, other = await api.key(Scope.CHAT, org="small"), await api.key(Scope.CHAT, org="small")
    held = await hold(api, key, under_way)
    reply = await api.send("GET", "/v1/me", key)
    assert reply.status_code == status
    if status == 429:
        error = reply.json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert 1 <= int(reply.headers["retry-after"]) <= 3
        assert reply.headers["x-ratelimit-limit"] == "20"
        assert api.service.concurrency.refused == {"TOO_MUCH_AT_ONCE": 1}
    assert (await api.send("GET", "/v1/me", other)).status_code == 200
    await cancelled(*held)
    assert (await api.send("GET", "/v1/me", other)).status_code == 200
    assert api.service.concurrency.calls.total == 0
    assert not api.service.concurrency.calls.of_key


async def test_work_whose_client_has_gone_still_counts_until_it_is_done(api: Api) -> None:
    await api.organisation("small", "free")
    key = await api.key(Scope.CHAT, org="small")
    held = await hold(api, key, FREE, **{"Idempotency-Key": "k"})
    await asyncio.sleep(0.05)
    await cancelled(*held)
    assert api.service.concurrency.calls.total == FREE
    assert (await api.send("GET", "/v1/me", key)).status_code == 429


@pytest.mark.parametrize(
    ("most_requests", "most", "holder", "other", "says"),
    [
        (10, 5, lambda index: caller(key_id=f"key {index}"), caller(org_id=2), "your organisation"),
        (100, KEYLESS_AT_ONCE, lambda _: AnonymousClient("192.0.2.1"), AnonymousClient("192.0.2.2"), "this address"),
    ],
)
def test_requests_of_a_holder_are_bounded(
    most_requests: int, most: int, holder: Callable[[int], Holder], other: Holder, says: str
) -> None:
    budgets = ConcurrencyLimits(most_requests=most_requests)
    with ExitStack() as held:
        for index in range(most):
            held.enter_context(budgets.call(holder(index)))
        with pytest.raises(ApiError, match=says) as error:
            held.enter_context(budgets.call(holder(most)))
        assert refusal(error) == (429, "rate_limit_exceeded")
        held.enter_context(budgets.call(other))
        held.enter_context(budgets.call(caller(org_id=3)))


def test_everybody_without_a_key_has_at_most_half_of_the_process() -> None:
    budgets = ConcurrencyLimits(most_requests=4)
    with budgets.call(AnonymousClient("192.0.2.1")), budgets.call(AnonymousClient("192.0.2.2")):
        with pytest.raises(ApiError, match="without a key"), budgets.call(AnonymousClient("192.0.2.3")):
            pytest.fail("one too many was let in")
        with budgets.call(caller()):
            pass


@pytest.mark.parametrize(("under_way", "status"), [(2, 200), (3, 503)])
async def test_requests_of_a_process_are_bounded_before_any_key_is_looked_at(
    api: Api, under_way: int, status: int
) -> None:
    api.service.concurrency.most_requests = 100
    await api.organisation("other")
    key = await api.key(Scope.CHAT, org="other")
    held = await hold(api, api.everything, under_way)
    api.service.concurrency.most_requests = 3
    reply = await api.send("GET", "/v1/me", key)
    assert reply.status_code == status
    if status == 503:
        assert reply.json()["error"]["code"] == "overloaded"
        assert reply.headers["x-request-id"].startswith("req_")
        assert 1 <= int(reply.headers["retry-after"]) <= 3
    assert (await api.client.get("/healthz")).status_code == 200
    await cancelled(*held)
    assert api.service.concurrency.requests == 0


@pytest.mark.parametrize(
    ("name", "whose", "status"),
    [
        ("BODIES_OF_KEY_BYTES", caller(), 429),
        ("BODIES_OF_ORGANISATION_BYTES", caller(key_id="other"), 429),
        ("BODIES_OF_PROCESS_BYTES", caller(org_id=2, key_id="third"), 503),
    ],
)
def test_bytes_of_bodies_are_bounded(monkeypatch: pytest.MonkeyPatch, name: str, whose: Caller, status: int) -> None:
    monkeypatch.setattr(budgets_module, name, 10 * MIB)
    budgets = ConcurrencyLimits()
    for more in (-1, 0, 1):
        with budgets.body(caller()) as first, budgets.body(whose) as second:
            first(9 * MIB)
            with nullcontext() if more <= 0 else pytest.raises(ApiError) as error:
                second(MIB + more)
        assert more <= 0 or refusal(error)[0] == status
        assert (budgets.body_bytes.total, bool(budgets.body_bytes.of_key)) == (0, False)


def test_credentials_that_a_key_has_issued_leave_half_of_its_bytes_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets_module, "BODIES_OF_KEY_BYTES", 20 * MIB)
    budgets, group = ConcurrencyLimits(), RateOwner("secrets of one", 1, 1)
    issued = [replace(caller(), derived=(RateOwner(name, 1, 1), group)) for name in ("secret a", "secret b")]
    for more in (-1, 0, 1):
        with budgets.body(issued[0]) as first, budgets.body(issued[1]) as second, budgets.body(caller()) as of_key:
            first(9 * MIB)
            with nullcontext() if more <= 0 else pytest.raises(ApiError, match="credentials that this key has issued"):
                second(MIB + more)
            of_key(10 * MIB)
        assert not budgets.body_bytes.of_key


async def test_a_body_counts_as_it_comes(api: Api) -> None:
    counted = asyncio.Event()

    async def half_a_body() -> AsyncIterator[bytes]:
        yield b"{" + b" " * 99_999
        await until(lambda: api.service.concurrency.body_bytes.total == 100_000)
        counted.set()
        yield b"}"

    headers = {"content-type": "application/json"}
    assert (await api.send("POST", "/v1/chat/completions", content=half_a_body(), headers=headers)).status_code == 400
    assert counted.is_set()


async def test_body_counts_until_its_request_is_over(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    (held,) = await hold(api, api.everything, 1)
    await until(lambda: api.service.concurrency.body_bytes.total)
    monkeypatch.setattr(budgets_module, "BODIES_OF_KEY_BYTES", api.service.concurrency.body_bytes.total + 10)
    refused(await api.chat("say hello"), 429, "rate_limit_exceeded")
    form = {"file": ("x.wav", b"hello")}
    assert (await api.send("POST", "/v1/audio/transcriptions", files=form)).status_code == 429
    await cancelled(held)
    assert (await api.chat("say hello")).status_code == 200


async def test_body_that_stops_coming_is_408_and_holds_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.ingress.front.bodies.BODY_IDLE_S", 0.02)

    async def half(text: bytes) -> AsyncGenerator[bytes, None]:
        yield text
        await asyncio.Event().wait()

    part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="x.wav"\r\n\r\nhello'
    for path, kind, text in (
        ("/v1/chat/completions", "application/json", b'{"model": '),
        ("/v1/audio/transcriptions", "multipart/form-data; boundary=x", part),
        ("/v1/mcp/mcp", "application/json", b"{"),
        ("/v1/mcp/docs/mcp", "application/json", b"{"),
    ):
        reply = await api.send("POST", path, content=half(text), headers={"content-type": kind})
        assert (reply.status_code, reply.json()["error"]["code"]) == (408, "request_timeout"), path
    assert (api.service.concurrency.body_bytes.total, api.service.concurrency.calls.total) == (0, 0)


async def test_refusals_are_counted_and_told_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    budgets = ConcurrencyLimits(most_requests=0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with pytest.raises(ApiError) as error, budgets.request(is_vital=False):
                pytest.fail("one too many was let in")
            budgets.count(error.value)
    assert budgets.refused == Counter(OVERLOADED=3)
    assert [record.getMessage() for record in caplog.records] == [
        "requests refused since the last report: OVERLOADED 1 (0 requests are running)"
    ]


BUFFER_BYTES = 4096
EVENTS = 3000
"""Of an answer that the buffers between server and client do not hold."""


@asynccontextmanager
async def served(api: Api) -> AsyncIterator[int]:
    """The app over a socket that takes little before it has to wait; gives its port."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app_over(api.service), lifespan="off", log_level="critical"))
    serving = asyncio.create_task(server.serve([listening]))
    try:
        await until(lambda: server.started)
        yield listening.getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await serving
        listening.close()


@asynccontextmanager
async def asked(api: Api, port: int, events: int) -> AsyncIterator[socket.socket]:
    """A connection on which a stream of so many events was asked for; nothing is read."""
    body = {"model": "obedient", "messages": [{"role": "user", "content": f"stream {events} 0"}], "stream": True}
    text = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.everything}\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
        yield client


def under_way(api: Api) -> int:
    """Streams that the engine works on."""
    engine = api.engine()
    assert isinstance(engine.adapter, ObedientChat)
    return engine.adapter.under_way


async def test_client_that_reads_nothing_is_dropped_and_its_engine_is_free(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "WRITE_S", 0.5)
    async with served(api) as port, asked(api, port, 10**6):
        await until(lambda: under_way(api))
        await until(lambda: not (under_way(api) or api.service.concurrency.requests))
    (line,) = await api.usage()
    assert 0 < line.quantity < 10**6, "what was produced is billed, and no more"


async def test_client_that_reads_slowly_is_not_dropped(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "WRITE_S", 1.0)
    read, loop = b"", asyncio.get_running_loop()
    async with served(api) as port, asked(api, port, 1500) as client:
        while b"[DONE]" not in read and (piece := await loop.sock_recv(client, 16384)):
            read += piece
            await asyncio.sleep(0.005)
    assert read.count(b"data: {") == 1500


async def read_at(client: socket.socket, bytes_per_s: int) -> None:
    """Reads so much in a second, until there is no more."""
    read, loop = 0, asyncio.get_running_loop()
    began = loop.time()
    while piece := await loop.sock_recv(client, 4096):
        read += len(piece)
        await asyncio.sleep(max(0.0, began + read / bytes_per_s - loop.time()))


@pytest.mark.parametrize(("least_bytes_per_s", "bytes_per_s"), [(16_000, 150_000), (4_000_000, 50_000)])
async def test_client_is_dropped_that_always_reads_in_time_but_too_little(
    api: Api, monkeypatch: pytest.MonkeyPatch, least_bytes_per_s: int, bytes_per_s: int
) -> None:
    """48 KiB leave the buffers at a time, at most a third of `WRITE_S` each: by that alone it would be kept."""
    monkeypatch.setattr(middleware, "WRITE_S", 3.0)
    monkeypatch.setattr(middleware, "WRITE_LEAST_BYTES_PER_S", least_bytes_per_s)
    async with served(api) as port, asked(api, port, EVENTS) as client:
        reading = asyncio.create_task(read_at(client, bytes_per_s))
        await until(lambda: under_way(api))
        await until(lambda: not (under_way(api) or api.service.concurrency.requests))
        reading.cancel()
    (line,) = await api.usage()
    assert (line.quantities["output_tokens"] < EVENTS) == (bytes_per_s < least_bytes_per_s)
