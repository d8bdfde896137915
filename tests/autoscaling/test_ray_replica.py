"""Serve's replica, hardened. Its queue of what came of a body is tried in a process with the graph's environment."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from types import ModuleType

import pytest
from ray.serve._private import replica
from ray.serve._private.request_router import replica_wrapper

from autoscaling.ray_internals.replica import (
    LOOPBACK_VARIABLE,
    MESSAGES,
    PORT_OPENER,
    SHUTDOWN,
    STUB,
    UNTRUSTED_HEADER_PARSERS,
    call_at_shutdown,
    ignore_client_control_headers,
    keep_replica_port_local,
    send_token_as_metadata,
)

SCRIPT = """
import asyncio
from ray.serve._private.direct_ingress_http_util import ASGIDIReceiveProxy
from autoscaling.ray_internals.replica import bound_body_queue

taken = 0

async def receive():
    global taken
    taken += 1
    await asyncio.sleep(0)
    return {"type": "http.request", "body": b"x", "more_body": True} if taken < 1000 else {"type": "http.disconnect"}

async def run():
    bound_body_queue()
    proxy = ASGIDIReceiveProxy({"type": "http"}, receive, asyncio.get_running_loop())
    fetching = proxy.fetch_until_disconnect_task()
    for _ in range(5000):
        await asyncio.sleep(0)
    print(taken)
    read = 0
    while (await proxy())["type"] == "http.request":
        read += 1
    await fetching
    print(read)

asyncio.run(run())
"""


HEADERS = {b"x-request-disconnect-disabled": b"?1", b"x-request-timeout-seconds": b"0.01"}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Serve's module, which is as it was after the test."""
    for name in (*UNTRUSTED_HEADER_PARSERS, PORT_OPENER):
        monkeypatch.setattr(replica, name, getattr(replica, name))
    return replica


def test_headers_that_would_switch_off_care_mean_nothing_to_serve(serve: ModuleType) -> None:
    ignore_client_control_headers()
    assert serve.parse_disconnect_disabled_header(HEADERS) is False
    assert serve.parse_request_timeout_header(HEADERS, 7.0) == 7.0


@pytest.mark.parametrize("name", UNTRUSTED_HEADER_PARSERS)
def test_start_is_refused_where_serve_reads_those_headers_with_something_else(serve: ModuleType, name: str) -> None:
    delattr(serve, name)
    with pytest.raises(RuntimeError, match=f"this version of Ray has no `{name}`"):
        ignore_client_control_headers()


def test_start_is_refused_where_the_port_of_replicas_would_be_open_to_the_network(
    serve: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    delattr(serve, PORT_OPENER)
    monkeypatch.setenv(LOOPBACK_VARIABLE, "1")
    with pytest.raises(RuntimeError, match="the port of replicas would be open to the network"):
        keep_replica_port_local()
    monkeypatch.setenv(LOOPBACK_VARIABLE, "")
    keep_replica_port_local()


def _taken_and_read(**environment: str) -> list[int]:
    """Messages that Serve takes from the network while nobody reads, and those that are read in the end."""
    found = subprocess.check_output([sys.executable, "-c", SCRIPT], env=os.environ | environment, text=True)
    return [int(number) for number in found.split()]


def test_a_body_that_nobody_reads_stays_in_the_network() -> None:
    taken, read = _taken_and_read(RAY_SERVE_THROUGHPUT_OPTIMIZED="1")
    # One more is in the hand of whoever waits for room.
    assert taken == MESSAGES["http"] + 1
    assert read == 999


def test_where_routes_have_an_event_loop_of_their_own_all_is_as_serve_has_it() -> None:
    taken, read = _taken_and_read(RAY_SERVE_THROUGHPUT_OPTIMIZED="0", RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD="1")
    assert (taken, read) == (1000, 999)


async def test_a_replica_that_is_told_to_go_says_so_before_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    acts: list[str] = []

    async def waits(self: object) -> None:
        await asyncio.sleep(0)
        acts.append("waited")

    monkeypatch.setattr(replica.Replica, SHUTDOWN, waits)
    call_at_shutdown(lambda: acts.append("told"))
    await getattr(replica.Replica, SHUTDOWN)(object())
    assert acts == ["told", "waited"]


async def test_a_ray_that_ends_replicas_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(replica.Replica, SHUTDOWN)
    with pytest.raises(RuntimeError, match=SHUTDOWN):
        call_at_shutdown(lambda: None)


CALLS = """
import asyncio
import grpc
from ray._private.grpc_utils import create_grpc_server_with_interceptors, init_grpc_channel
from ray.serve._private.request_router import replica_wrapper
from ray.serve.generated.serve_pb2 import ASGIRequest, ASGIResponse
from ray.serve.generated.serve_pb2_grpc import ASGIServiceServicer, ASGIServiceStub, add_ASGIServiceServicer_to_server
from autoscaling.ray_internals.replica import send_token_as_metadata


class Replica(ASGIServiceServicer):
    async def HandleRequestWithRejection(self, request, context):
        return ASGIResponse(serialized_message=request.request_args)

    async def HandleRequestWithRejectionStreaming(self, request, context):
        for number in range(3):
            yield ASGIResponse(serialized_message=request.request_args)


async def answers(stub):
    request = ASGIRequest(request_args=b"answer")
    whole, stream = stub.HandleRequestWithRejection(request), stub.HandleRequestWithRejectionStreaming(request)
    print(*("Intercepted" in type(call).__name__ for call in (whole, stream)))
    print((await whole).serialized_message, [item.serialized_message async for item in stream])


async def run():
    server = create_grpc_server_with_interceptors(asynchronous=True)
    add_ASGIServiceServicer_to_server(Replica(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    async with init_grpc_channel(address, asynchronous=True) as channel:
        await answers(replica_wrapper.ASGIServiceStub(channel))
        send_token_as_metadata()
        await answers(replica_wrapper.ASGIServiceStub(channel))
    async with grpc.aio.insecure_channel(address) as channel:
        try:
            await answers(ASGIServiceStub(channel))
        except grpc.aio.AioRpcError as error:
            print(error.code().name)
    await server.stop(None)

asyncio.run(run())
"""

INTERCEPTED, PLAIN = "True True", "False False"
ANSWERS = "b'answer' [b'answer', b'answer', b'answer']"


@pytest.mark.parametrize(
    ("settings", "printed"),
    [
        (
            {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64},
            [INTERCEPTED, ANSWERS, PLAIN, ANSWERS, PLAIN, "UNAUTHENTICATED"],  # Ray's own way, ours, no token
        ),
        ({"RAY_AUTH_MODE": "disabled"}, [PLAIN, ANSWERS] * 3),
    ],
)
def test_a_replica_takes_calls_that_no_interceptor_has_seen(settings: dict[str, str], printed: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, "-c", CALLS], env=os.environ | settings, capture_output=True, text=True, check=False
    )
    assert run.stdout.splitlines() == printed, run.stderr


def test_start_is_refused_where_serve_calls_replicas_with_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(replica_wrapper, STUB)
    with pytest.raises(RuntimeError, match=f"this version of Ray has no `{STUB}`"):
        send_token_as_metadata()
