"""Drafts through HAProxy and ingress, over a designer that obeys: cold, killed, discarded at work."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.cluster.conftest import Server
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

DESIGNS = "/audio/voices/designs"
ORDER = {"gender": "f", "age_years": 34, "language": "en"}
DESIGNER = "voice-design-qwen3-tts"


def order(server: Server, **fields: Any) -> httpx.Response:
    with server.http() as client:
        return client.post(DESIGNS, json=ORDER | fields)


def poll(server: Server, draft_id: str) -> dict[str, Any]:
    with server.http() as client:
        found: dict[str, Any] = client.get(f"{DESIGNS}/{draft_id}").json()
        return found


def until(server: Server, draft_id: str, status: str) -> dict[str, Any]:
    eventually(lambda: poll(server, draft_id)["status"] == status, 60, f"the draft never was {status}")
    return poll(server, draft_id)


def discard(server: Server, draft_id: str) -> None:
    with server.http() as client:
        assert client.delete(f"{DESIGNS}/{draft_id}").json()["status"] == "discarded"


def is_voice(server: Server, slug: str) -> bool:
    """Whether a voice is listed; False also while no ingress answers."""
    try:
        with server.http() as client:
            reply = client.get("/audio/voices", timeout=5)
    except httpx.TransportError:
        return False
    return reply.status_code == 200 and slug in {voice["slug"] for voice in reply.json()["data"]}


def test_a_cold_designer_is_waited_for_and_the_voice_speaks(server: Server) -> None:
    reply = order(server)
    assert (reply.status_code, reply.json()["status"]) == (202, "pending")
    draft = until(server, reply.json()["id"], "ready")
    assert httpx.get(draft["sample_url"]).status_code == 200
    with server.http() as client:
        voice = client.post(f"{DESIGNS}/{draft['id']}/adopt", json={"slug": "our-anna"}).json()
        assert is_voice(server, voice["slug"])
        assert client.post("/audio/speech", json={"input": "hello", "voice": "our-anna"}).status_code == 200
    discard(server, draft["id"])


def test_auto_adopt_completes_without_a_poll(server: Server) -> None:
    draft_id = order(server, auto_adopt=True, slug="our-bea").json()["id"]
    eventually(lambda: is_voice(server, "our-bea"), 60, "nobody adopted it")
    discard(server, draft_id)


def test_the_fourth_draft_is_refused_and_the_work_outlives_its_clients(server: Server) -> None:
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(lambda _: order(server, instruct="hold 2"), range(6)))
    assert sorted(reply.status_code for reply in replies) == [202] * 3 + [409] * 3
    for reply in replies:
        if reply.status_code == 202:
            until(server, reply.json()["id"], "ready")
            discard(server, reply.json()["id"])


def test_a_designer_that_is_killed_leaves_a_draft_that_is_finished(server: Server) -> None:
    draft_id = order(server, instruct="hold 3").json()["id"]
    (process,) = eventually(lambda: server.replica_processes(DESIGNER), 60, "the designer never started")
    process.kill()
    draft = until(server, draft_id, "ready")
    assert draft["cost_micro_eur"] > 0
    discard(server, draft_id)


def test_a_draft_that_kills_every_designer_fails_and_costs_nothing(server: Server) -> None:
    draft_id = order(server, instruct="die").json()["id"]
    draft = until(server, draft_id, "failed")
    assert (draft["cost_micro_eur"], draft["sample_url"]) == (0, None)
    after = order(server).json()["id"]
    until(server, after, "ready")
    discard(server, after)


def test_discarding_ends_the_work(server: Server) -> None:
    ids = [order(server, instruct="hold 600").json()["id"] for _ in range(3)]
    for draft_id in ids:
        discard(server, draft_id)
    eventually(lambda: server.replicas(DESIGNER) == 0, 60, "the designer works on for nobody")


def test_an_ingress_that_is_killed_leaves_a_draft_that_the_next_one_finishes_and_adopts(server: Server) -> None:
    draft_id = order(server, instruct="hold 2", auto_adopt=True, slug="our-cleo").json()["id"]
    (process,) = server.replica_processes("ingress")
    process.kill()
    eventually(lambda: is_voice(server, "our-cleo"), 120, "nobody went on")
    discard(server, draft_id)
