"""Serve's queue of what came of a body, in a process with the environment that the graph has."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from autoscaling.ray_internals.replica import MESSAGES, UNTRUSTED_HEADER_PARSERS

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


HEADERS = """
from ray.serve._private import replica
from autoscaling.ray_internals.replica import ignore_client_control_headers
import sys
if sys.argv[1:]:
    delattr(replica, sys.argv[1])
ignore_client_control_headers()
headers = {b"x-request-disconnect-disabled": b"?1", b"x-request-timeout-seconds": b"0.01"}
print(replica.parse_disconnect_disabled_header(headers), replica.parse_request_timeout_header(headers, 7.0))
"""

LOOPBACK = """
from ray.serve._private import replica
from autoscaling.ray_internals.replica import PORT_OPENER, keep_replica_port_local
delattr(replica, PORT_OPENER)
keep_replica_port_local()
"""


def _run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def test_headers_that_would_switch_off_care_mean_nothing_to_serve() -> None:
    assert _run(HEADERS).stdout.split() == ["False", "7.0"]


@pytest.mark.parametrize("name", UNTRUSTED_HEADER_PARSERS)
def test_start_is_refused_where_serve_reads_those_headers_with_something_else(name: str) -> None:
    done = _run(HEADERS, name)
    assert done.returncode == 1
    assert f"this version of Ray has no `{name}`" in done.stderr


def test_start_is_refused_where_the_port_of_replicas_would_be_open_to_the_network() -> None:
    done = _run(LOOPBACK, PARLANCE_LOOPBACK="1")
    assert done.returncode == 1
    assert "the port of replicas would be open to the network" in done.stderr
    assert _run(LOOPBACK, PARLANCE_LOOPBACK="").returncode == 0


def _taken_and_read(**environment: str) -> list[int]:
    """Messages that Serve takes from the network while nobody reads, and those that are read in the end."""
    found = subprocess.check_output([sys.executable, "-c", SCRIPT], env=os.environ | environment, text=True)
    return [int(number) for number in found.split()]


def test_a_body_that_nobody_reads_stays_in_the_network() -> None:
    taken, read = _taken_and_read(RAY_SERVE_THROUGHPUT_OPTIMIZED="1")
    # One more is in the hand of whoever waits for room.
    assert taken == MESSAGES + 1
    assert read == 999


def test_where_routes_have_an_event_loop_of_their_own_all_is_as_serve_has_it() -> None:
    taken, read = _taken_and_read(RAY_SERVE_THROUGHPUT_OPTIMIZED="0", RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD="1")
    assert (taken, read) == (1000, 999)
