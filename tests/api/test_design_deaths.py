"""kill -9 of an ingress with drafts in every state; a process that starts later goes on with them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from contract.voice_design.draft import DRAFT_STATES
from deployments.ingress.context import Service
from state import open_state
from state.drafts import Drafts
from state.drafts.store import LEASE_S
from tests.api.conftest import Api, client_of
from tests.api.designs import DESIGNS, ORDER
from tests.api.engines import local_engines
from tests.catalogs import behaving, chat
from tests.waiting import until

ROOT = Path(__file__).parent.parent.parent


class Client:
    """A client of the process that dies."""

    def __init__(self, port: int, key: str) -> None:
        headers = {"authorization": f"Bearer {key}"}
        self.http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers)
        self.key = key

    async def order(self, **fields: Any) -> str:
        reply = await self.http.post(DESIGNS, json=ORDER | fields)
        assert reply.status_code == 202, reply.text
        return str(reply.json()["id"])

    async def made(self, status: str = "ready", **fields: Any) -> str:
        draft_id = await self.order(**fields)

        async def done() -> bool:
            return bool((await self.http.get(f"{DESIGNS}/{draft_id}")).json()["status"] == status)

        await until(done)
        return draft_id

    async def in_every_state(self) -> dict[str, str]:
        """State to the id of a draft in it."""
        found = {"ready": await self.made(), "failed": await self.made("failed", instruct="fail")}
        for state, method, end in (("adopted", "POST", "/adopt"), ("discarded", "DELETE", "")):
            found[state] = await self.made(label=state)
            assert (await self.http.request(method, f"{DESIGNS}/{found[state]}{end}")).status_code == 200
        return found | {"pending": await self.order(instruct="hold", auto_adopt=True, slug="orphan")}


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that serves."""
    command = [sys.executable, "-m", "tests.api.serving", str(tmp_path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        yield process
        process.kill()


@pytest.fixture
async def dead(doomed: subprocess.Popen[str]) -> tuple[str, dict[str, str]]:
    """The key and the drafts of a process that was killed while it worked on one of them."""
    assert doomed.stdout
    port, key = doomed.stdout.readline().split()
    client = Client(int(port), key)
    async with client.http:
        found = await client.in_every_state()
    doomed.kill()
    doomed.wait()
    return key, found


@pytest.fixture
async def heir(tmp_path: Path, dead: tuple[str, dict[str, str]]) -> AsyncIterator[Api]:
    """A process that starts on the same state, once the lease of the dead one has ended."""
    state = await open_state(tmp_path)
    state.drafts = Drafts(state.database, state.blobs, lambda: time.time() + LEASE_S)
    catalog = behaving(obedient=chat("obedient"))
    service = Service(catalog, local_engines(catalog), state)
    yield Api(service, client_of(service), dead[0])
    await service.drafts.close()
    await state.close()


async def test_every_draft_is_as_it_was_and_the_pending_one_is_finished(
    heir: Api, dead: tuple[str, dict[str, str]]
) -> None:
    _, found = dead
    assert set(found) == set(DRAFT_STATES)
    for state, draft_id in found.items():
        assert (await heir.state.drafts.read(draft_id)).state == state  # type: ignore[union-attr]
    assert len(await heir.usage()) == 3

    engine: Any = heir.service.engines["voice-design-qwen3-tts"]
    engine.adapter.go.set()
    await heir.service.drafts.poll()

    async def finished() -> bool:
        return await heir.state.voices.find(1, "orphan") is not None

    await until(finished)
    assert (await heir.send("GET", f"{DESIGNS}/{found['pending']}")).json()["voice"]["slug"] == "orphan"
    assert len(await heir.usage()) == 4
    sample = (await heir.send("GET", f"{DESIGNS}/{found['ready']}")).json()["sample_url"]
    assert (await heir.client.get(sample)).status_code == 200
    assert (await heir.send("POST", f"{DESIGNS}/{found['ready']}/adopt")).status_code == 200
    reply = await heir.send("POST", "/v1/audio/speech", json={"input": "x", "voice": "adopted"})
    assert reply.status_code == 200
