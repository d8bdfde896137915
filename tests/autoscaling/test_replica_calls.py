"""Calls of replicas over gRPC as `autoscaling.ray_internals.replica` changes them, in processes of their own."""

import os
import subprocess
import sys

import pytest

SERVER = """
import asyncio
import sys
import grpc
from ray._private.grpc_utils import create_grpc_server_with_interceptors, init_grpc_channel
from ray.serve._private import replica
from ray.serve._private.request_router import replica_wrapper
from ray.serve.generated.serve_pb2 import ASGIRequest, ASGIResponse
from ray.serve.generated.serve_pb2_grpc import ASGIServiceServicer, ASGIServiceStub
from autoscaling.ray_internals import replica as hardening

REQUEST = ASGIRequest(request_args=b"answer")


async def start(servicer):
    servicer._server = create_grpc_server_with_interceptors(asynchronous=True)
    replica.add_ASGIServiceServicer_to_server(servicer, servicer._server)
    port = servicer._server.add_insecure_port("127.0.0.1:0")
    await servicer._server.start()
    return port
"""

CALLS = """
class Replica(ASGIServiceServicer):
    async def HandleRequestWithRejection(self, request, context):
        return ASGIResponse(serialized_message=request.request_args)

    async def HandleRequestWithRejectionStreaming(self, request, context):
        for number in range(3):
            yield ASGIResponse(serialized_message=request.request_args)


async def answers(stub):
    whole, stream = stub.HandleRequestWithRejection(REQUEST), stub.HandleRequestWithRejectionStreaming(REQUEST)
    print(*("Intercepted" in type(call).__name__ for call in (whole, stream)))
    print((await whole).serialized_message, [item.serialized_message async for item in stream])


async def run():
    hardening.allow_pings()
    address = f"127.0.0.1:{await start(Replica())}"
    async with init_grpc_channel(address, asynchronous=True) as channel:
        await answers(replica_wrapper.ASGIServiceStub(channel))
        hardening.send_token_as_metadata()
        await answers(replica_wrapper.ASGIServiceStub(channel))
    async with grpc.aio.insecure_channel(address) as channel:
        try:
            await answers(ASGIServiceStub(channel))
        except grpc.aio.AioRpcError as error:
            print(error.code().name)

asyncio.run(run())
"""

INTERCEPTED, PLAIN = "True True", "False False"
ANSWERS = "b'answer' [b'answer', b'answer', b'answer']"

LOST = """
hardening.PING_S = 0.5
has_come = asyncio.Event()


class Replica(ASGIServiceServicer):
    async def HandleRequestWithRejection(self, request, context):
        has_come.set()
        await asyncio.sleep(5)
        return ASGIResponse(serialized_message=request.request_args)


async def carry_until_lost(reader, writer):
    while not has_come.is_set() and (data := await reader.read(65536)):
        writer.write(data)


async def called(port):
    stub = replica_wrapper.ASGIServiceStub(replica_wrapper.init_grpc_channel(f"127.0.0.1:{port}", asynchronous=True))
    try:
        return (await stub.HandleRequestWithRejection(REQUEST)).serialized_message
    except grpc.aio.AioRpcError as error:
        return error.code().name


async def run():
    for adapt in sys.argv[1:]:
        getattr(hardening, adapt)()
    port = await start(Replica())

    async def connect(reader, writer):
        server = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(carry_until_lost(reader, server[1]), carry_until_lost(server[0], writer))

    cable = await asyncio.start_server(connect, "127.0.0.1", 0)
    print(await called(cable.sockets[0].getsockname()[1]), await called(port))

asyncio.run(run())
"""

NO_TOKEN = {"RAY_AUTH_MODE": "disabled"}


def _printed(script: str, settings: dict[str, str], *arguments: str) -> list[str]:
    command = [sys.executable, "-c", SERVER + script, *arguments]
    run = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


@pytest.mark.parametrize(
    ("settings", "printed"),
    [
        (
            {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64},
            [INTERCEPTED, ANSWERS, PLAIN, ANSWERS, PLAIN, "UNAUTHENTICATED"],  # Ray's own way, ours, no token
        ),
        (NO_TOKEN, [PLAIN, ANSWERS] * 3),
    ],
)
def test_a_replica_takes_calls_that_no_interceptor_has_seen(settings: dict[str, str], printed: list[str]) -> None:
    assert _printed(CALLS, settings) == printed


@pytest.mark.parametrize(("allows", "silent"), [(["allow_pings"], "b'answer'"), ([], "UNAVAILABLE")])
def test_a_call_to_a_machine_that_is_gone_fails_and_a_silent_one_goes_on_where_pings_are_allowed(
    allows: list[str], silent: str
) -> None:
    assert _printed(LOST, NO_TOKEN, "end_calls_to_lost_nodes", *allows) == [f"UNAVAILABLE {silent}"]
