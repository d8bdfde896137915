"""Streams under way when a limit is set or their key is revoked: they end as new requests would, within seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

import httpx
import pytest
from sqlalchemy import update

from contract.access import Scope
from contract.limits import KEYLESS_REQUESTS
from state.accounts import api_keys
from state.billing.months import iso_s
from state.database.tables import api_keys as api_keys_table
from tests.api.conftest import Api, refused
from tests.waiting import until

EVENTS = 10_000
"""Of a stream that nobody waits for to its end."""


async def streaming(api: Api, key: str | None = None) -> asyncio.Task[httpx.Response]:
    """A stream that has begun."""
    asking = asyncio.create_task(api.chat(f"stream {EVENTS} 0.002", key, stream=True))
    engine = api.engine()
    before = engine.given
    await until(lambda: engine.given > before)
    return asking


async def ended(api: Api, asking: asyncio.Task[httpx.Response], code: str) -> None:
    """The stream ends with this error event, and is billed as far as it went."""
    async with asyncio.timeout(15):
        reply = await asking
    assert reply.status_code == 200
    assert f'"{code}"' in reply.text.strip().rpartition("\n\n")[2]
    assert "[DONE]" not in reply.text
    (line,) = await api.usage()
    assert 0 < line.quantities["output_tokens"] < EVENTS
    # What the engine made last was counted, and not sent.
    assert reply.text.count('"role"') == line.quantities["output_tokens"] - 1


@pytest.mark.parametrize("limit", [0, 1])
async def test_a_limit_that_is_set_ends_streams_that_began_without_one(
    api: Api, pass_cache_time: Callable[[], None], limit: int
) -> None:
    asking = await streaming(api)
    await api.limit(limit)
    pass_cache_time()
    await ended(api, asking, "org_spend_limit")
    spend = await api.spend()
    assert (spend["spent_micro_eur"], spend["held_micro_eur"]) == (limit, 0), "no more than the limit is charged"


async def test_a_limit_of_the_user_ends_its_streams_only(api: Api, pass_cache_time: Callable[[], None]) -> None:
    key = await api.key(Scope.CHAT, user="eve")
    asking = await streaming(api, key)
    await api.limit(0, user="eve")
    pass_cache_time()
    assert (await api.chat()).status_code == 200
    async with asyncio.timeout(15):
        assert '"user_spend_limit"' in (await asking).text


async def test_a_limit_with_room_is_held_against_and_lets_the_stream_go_on(
    api: Api, pass_cache_time: Callable[[], None]
) -> None:
    asking = await streaming(api)
    await api.limit(10**9)
    pass_cache_time()
    async with asyncio.timeout(15):
        while not (await _spend(api))["held_micro_eur"]:
            assert not asking.done()
    asking.cancel()
    await asyncio.wait([asking])
    async with asyncio.timeout(15):
        while (spend := await _spend(api))["held_micro_eur"]:
            assert asking.done(), "its bill is still being written"
    (line,) = await api.usage()
    assert (spend["spent_micro_eur"], spend["held_micro_eur"]) == (line.cost_micro_eur, 0)


async def test_a_key_that_is_revoked_ends_its_streams(api: Api, pass_cache_time: Callable[[], None]) -> None:
    key = await api.key(Scope.CHAT)
    asking = await streaming(api, key)
    await api.state.database.run(partial(api_keys.revoke, public_id=key.split("_")[1], now_s=1))
    pass_cache_time()
    await ended(api, asking, "invalid_api_key")
    assert (await api.chat(key=key)).status_code == 401
    assert (await api.chat()).status_code == 200


async def test_a_key_that_expires_ends_its_streams_at_that_moment(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    key, until_s = await api.key(Scope.CHAT), int(time.time()) + 3600
    expiry = update(api_keys_table).where(api_keys_table.c.public_id == key.split("_")[1]).values(expires_at=until_s)
    await api.state.database.run(lambda connection: connection.execute(expiry) and None)
    me = (await api.send("GET", "/v1/me", key)).json()
    assert me["key_expires_at"] == iso_s(until_s)
    asking = await streaming(api, key)
    # What is known of the key is in the cache, and its seconds there are not over.
    monkeypatch.setattr(api.state.accounts, "_wall", lambda: float(until_s))
    await ended(api, asking, "expired_api_key")
    says = f"the API key expired at {iso_s(until_s)}; create another"
    refused(await api.chat(key=key), 401, "expired_api_key", None, says)
    assert (await api.chat()).status_code == 200


async def test_expired_keys_count_as_keys_that_open_nothing(api: Api) -> None:
    key = await api.key(Scope.CHAT)
    expiry = update(api_keys_table).where(api_keys_table.c.public_id == key.split("_")[1]).values(expires_at=1)
    await api.state.database.run(lambda connection: connection.execute(expiry) and None)
    replies = [await api.chat(key=key) for _ in range(KEYLESS_REQUESTS + 1)]
    assert [reply.status_code for reply in replies[-2:]] == [401, 429]
    assert (await api.chat()).status_code == 200


async def _spend(api: Api) -> dict[str, int]:
    found: dict[str, int] = await api.spend()
    return found
