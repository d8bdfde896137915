"""Calls of replicas carry the cluster's token, before a server that has Ray's own check of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ray.serve._private.request_router import replica_wrapper

from autoscaling.ray_internals.replica import STUB, send_token_as_metadata

SCRIPT = """
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
        [sys.executable, "-c", SCRIPT], env=os.environ | settings, capture_output=True, text=True, check=False
    )
    assert run.stdout.splitlines() == printed, run.stderr


def test_start_is_refused_where_serve_calls_replicas_with_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(replica_wrapper, STUB)
    with pytest.raises(RuntimeError, match=f"this version of Ray has no `{STUB}`"):
        send_token_as_metadata()
