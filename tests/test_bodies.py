"""Serve's queue of what came of a body, in a process with the environment that the graph has."""

from __future__ import annotations

import os
import subprocess
import sys

from deployments.bodies import MESSAGES

SCRIPT = """
import asyncio
from ray.serve._private.direct_ingress_http_util import ASGIDIReceiveProxy
from deployments.bodies import take_bodies_as_they_are_read

taken = 0

async def receive():
    global taken
    taken += 1
    await asyncio.sleep(0)
    return {"type": "http.request", "body": b"x", "more_body": True} if taken < 1000 else {"type": "http.disconnect"}

async def run():
    take_bodies_as_they_are_read()
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
