"""Two engines, and memory for one of them: both answer, because the one that is idle makes room."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.conftest import Server
from tests.waiting import eventually

pytestmark = pytest.mark.cluster


def test_an_idle_engine_makes_room_for_one_that_somebody_waits_for(server: Server) -> None:
    for asked, other in (("left", "right"), ("right", "left")):
        reply = server.chat(asked, "say hi")
        assert reply.status_code == 200, reply.text
        assert server.replicas(f"chat-{asked}") == 1
        assert server.replicas(f"chat-{other}") == 0


def test_an_engine_at_work_makes_no_room(server: Server) -> None:
    with ThreadPoolExecutor() as pool:
        work = pool.submit(server.chat, "left", "hold 8")
        eventually(lambda: server.replicas("chat-left"), 60, "the idle one made no room")
        waiting = pool.submit(server.chat, "right", "say hi")
        assert work.result().status_code == 200
        assert not waiting.done()
        assert waiting.result().status_code == 200
