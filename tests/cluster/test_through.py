"""A scorer that reads through a chat model: it wakes it, leaves with its client, and sees it die."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest

from tests.cluster.conftest import Server, eventually

pytestmark = pytest.mark.cluster

BINARY = {"type": "binary", "instructions": "Is it?", "true_description": "yes", "false_description": "no"}
BODY = {"model": "decision-through", "state": "A text."}
HELD = BODY | {"questions": {f"q{index}": BINARY for index in range(16)}}


def under_way(server: Server) -> int:
    """Calls that the chat model works on."""
    return int(server.chat("read", "count").json()["choices"][0]["message"]["content"])


def test_it_wakes_the_chat_model_and_answers(server: Server) -> None:
    with server.http() as client:
        reply = client.post("/decisions", json=BODY | {"questions": {"q": BINARY}})
        assert reply.status_code == 200, reply.text
        assert reply.json()["answers"]["q"]["probability_true"] == pytest.approx(2 / 3)
        listed = {model["id"]: model for model in client.get("/decisions/models").json()["data"]}
    assert listed["decision-through"]["status"] == "measured"
    assert server.replicas("read") == 1


def test_a_client_that_leaves_takes_its_read_with_it(server: Server) -> None:
    async def leave() -> None:
        address, headers = f"{server.url}/v1/decisions", {"authorization": f"Bearer {server.key}"}
        async with httpx.AsyncClient(timeout=60) as client:
            asking = asyncio.create_task(client.post(address, json=HELD, headers=headers))
            await asyncio.to_thread(eventually, lambda: under_way(server) == 1, 30, "the read does not arrive")
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(leave())
    eventually(lambda: under_way(server) == 0, 30, "the read goes on without its client")


def test_a_chat_model_that_dies_is_502_and_comes_back(server: Server) -> None:
    found: list[Any] = []

    def ask() -> None:
        with server.http() as client:
            found.append(client.post("/decisions", json=HELD))

    asking = threading.Thread(target=ask)
    asking.start()
    eventually(lambda: under_way(server) == 1, 30, "the read does not arrive")
    assert server.chat("read", "die").status_code == 502
    asking.join(60)
    assert (found[0].status_code, found[0].json()["error"]["code"]) == (502, "upstream_error")
    with server.http() as client:
        again = client.post("/decisions", json=BODY | {"questions": {"q": BINARY}})
    assert again.status_code == 200, again.text
