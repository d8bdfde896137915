"""Verdicts on speech, in this process and in a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis as Client

from contract.access import TARIFFS, Caller
from contract.speech.verdict import VERDICT_KEPT_S
from state import verdicts as module
from state.verdicts import Verdicts
from tests.state.books import refusal
from tests.state.servers import Redis

TEXT = '{"heard": "señor 東京"}'.encode()


def of(org_id: int, user_id: int | None = None) -> Caller:
    return Caller(org_id, "acme", "k3Jd92Xa", TARIFFS["pro"], frozenset(), user_id)


ONE, OTHER = of(1), of(2)


@pytest.fixture(params=["local", "redis"])
async def verdicts(request: pytest.FixtureRequest) -> AsyncIterator[Verdicts]:
    if request.param == "local":
        yield Verdicts()
        return
    redis: Redis = request.getfixturevalue("redis")
    async with Client.from_url(redis.url) as client:
        await client.flushall()
        yield Verdicts(client)


@pytest.mark.parametrize(
    ("by", "to", "is_seen"),
    [
        (of(1, 7), of(1, 7), True),
        (of(1, 7), of(1, 8), False),
        (of(1, 7), of(1), True),
        (of(1), of(1, 7), False),
        (of(1), of(1), True),
        (of(1, 7), of(2, 7), False),
    ],
)
async def test_a_verdict_belongs_to_an_organisation_and_a_user(
    by: Caller, to: Caller, is_seen: bool, verdicts: Verdicts
) -> None:
    await verdicts.keep(by, "req_1", b"")
    assert await verdicts.find(to, "req_1") == (b"" if is_seen else None)
    await verdicts.keep(by, "req_1", TEXT)
    assert await verdicts.find(to, "req_1") == (TEXT if is_seen else None)


@pytest.mark.parametrize("text", [TEXT, b""])
@pytest.mark.parametrize("beyond", [-1, 0, 1])
async def test_an_organisation_pushes_out_its_own_verdicts_only(
    beyond: int, text: bytes, verdicts: Verdicts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "VERDICTS_KEPT", 20)
    await verdicts.keep(OTHER, "req_other", TEXT)
    room = 20 if verdicts._redis else 19  # in one process both share it
    for number in range(room + beyond):
        await verdicts.keep(ONE, f"req_{number}", text)
    assert await verdicts.find(OTHER, "req_other") == TEXT
    assert (await verdicts.find(ONE, "req_0") is None) is (beyond > 0)
    assert [await verdicts.find(ONE, f"req_{number}") for number in range(1, room + beyond)] == [text] * (
        room + beyond - 1
    )


async def test_processes_share_verdicts_in_redis_for_ten_minutes(redis: Redis) -> None:
    async with Client.from_url(redis.url) as one, Client.from_url(redis.url) as other:
        await Verdicts(one).keep(ONE, "req_shared", b"")
        assert await Verdicts(other).find(ONE, "req_shared") == b""
        await Verdicts(one).keep(ONE, "req_shared", TEXT)
        assert await Verdicts(other).find(ONE, "req_shared") == TEXT
        assert await Verdicts(other).find(OTHER, "req_shared") is None
        (name,) = await one.keys("*req_shared")
        assert VERDICT_KEPT_S - 60 < await one.ttl(name) <= VERDICT_KEPT_S


async def test_the_word_that_one_will_come_never_replaces_a_verdict(redis: Redis) -> None:
    async with Client.from_url(redis.url) as client:
        verdicts = Verdicts(client)
        await verdicts.keep(ONE, "req_late", TEXT)
        await verdicts.keep(ONE, "req_late", b"")
        assert await verdicts.find(ONE, "req_late") == TEXT


async def test_a_verdict_that_redis_does_not_take_is_no_error_and_one_that_it_does_not_give_is(redis: Redis) -> None:
    async with Client.from_url(redis.url, socket_timeout=5) as client:
        verdicts = Verdicts(client)
        redis.stop()
        try:
            await verdicts.keep(ONE, "req_lost", TEXT)
            assert (await refusal(verdicts.find(ONE, "req_lost"))).fault.code == "state_unavailable"
        finally:
            redis.restart()
        assert await verdicts.find(ONE, "req_lost") is None
