"""Orders of voices over the real app, for the tests of what becomes of them."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from deployments.ingress.draft_worker import DraftWorker
from tests.api.conftest import Api
from tests.engines import ObedientDesigner
from tests.waiting import until

DESIGNS = "/v1/audio/voices/designs"
OPTIONS = "/v1/audio/voices/design-options"
ORDER = {"gender": "f", "age_years": 34, "language": "en"}
DEPLOYMENT = "voice-design-qwen3-tts"
COST_MICRO_EUR = 1500
"""Of a voice of the obedient designer."""
HELD_MICRO_EUR = 60_000
"""Before it is made."""

Draft = dict[str, Any]


def designer(api: Api) -> ObedientDesigner:
    adapter: ObedientDesigner = api.engine(DEPLOYMENT).adapter
    return adapter


async def order(
    api: Api, key: str | None = None, headers: dict[str, str] | None = None, **fields: Any
) -> httpx.Response:
    return await api.send("POST", DESIGNS, key, json=ORDER | fields, headers=headers or {})


async def ordered(api: Api, key: str | None = None, **fields: Any) -> Draft:
    """A draft as it was answered when it was ordered."""
    reply = await order(api, key, **fields)
    assert reply.status_code == 202, reply.text
    body: Draft = reply.json()
    return body


async def poll(api: Api, draft: Draft, key: str | None = None) -> Draft:
    reply = await api.send("GET", f"{DESIGNS}/{draft['id']}", key)
    assert reply.status_code == 200, reply.text
    body: Draft = reply.json()
    return body


async def listed(api: Api, key: str | None = None) -> list[Draft]:
    drafts: list[Draft] = (await api.send("GET", DESIGNS, key)).json()["data"]
    return drafts


async def arrived(api: Api, draft: Draft, *statuses: str) -> Draft:
    """The draft once it has one of `statuses`; it is not polled until then."""

    async def is_there() -> bool:
        found = await api.state.drafts.read(draft["id"])
        return found is not None and found.state in statuses

    await until(is_there)
    return await poll(api, draft)


async def made(api: Api, **fields: Any) -> Draft:
    """A draft that is ready, or has failed."""
    return await arrived(api, await ordered(api, **fields), "ready", "failed")


async def adopt(api: Api, draft: Draft, key: str | None = None, **fields: Any) -> httpx.Response:
    body = {"json": fields} if fields else {}
    return await api.send("POST", f"{DESIGNS}/{draft['id']}/adopt", key, **body)


async def discard(api: Api, draft: Draft, key: str | None = None) -> httpx.Response:
    return await api.send("DELETE", f"{DESIGNS}/{draft['id']}", key)


async def until_designed(api: Api, voices: int = 1) -> None:
    """Returns once the designer is at work on that number of voices."""
    await until(lambda: designer(api).under_way == voices)


async def until_idle(*workers: DraftWorker) -> None:
    """Returns once these processes work on no draft."""
    await until(lambda: not any(worker._working for worker in workers))


@pytest.fixture
async def held(api: Api) -> AsyncIterator[Draft]:
    """A draft whose designer waits for `go`."""
    draft = await ordered(api, instruct="hold")
    await until_designed(api)
    yield draft
    designer(api).go.set()
