"""Verdicts on speech, in this process and in a real Redis."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis as Client

from contract.speech.verdict import VERDICT_KEPT_S, VERDICTS_KEPT
from state.verdicts import Verdicts
from tests.state.books import refusal
from tests.state.servers import Redis

TEXT = '{"heard": "señor 東京"}'.encode()


async def test_processes_share_verdicts_in_redis_for_ten_minutes(redis: Redis) -> None:
    async with Client.from_url(redis.url) as one, Client.from_url(redis.url) as other:
        await Verdicts(one).keep(1, "req_shared", b"")
        assert await Verdicts(other).find(1, "req_shared") == b""
        await Verdicts(one).keep(1, "req_shared", TEXT)
        assert await Verdicts(other).find(1, "req_shared") == TEXT
        assert await Verdicts(other).find(2, "req_shared") is None
        (name,) = await one.keys("*req_shared")
        assert VERDICT_KEPT_S - 60 < await one.ttl(name) <= VERDICT_KEPT_S


async def test_the_word_that_one_will_come_never_replaces_a_verdict(redis: Redis) -> None:
    async with Client.from_url(redis.url) as client:
        verdicts = Verdicts(client)
        await verdicts.keep(1, "req_late", TEXT)
        await verdicts.keep(1, "req_late", b"")
        assert await verdicts.find(1, "req_late") == TEXT


async def test_a_verdict_that_redis_does_not_take_is_no_error_and_one_that_it_does_not_give_is(redis: Redis) -> None:
    async with Client.from_url(redis.url, socket_timeout=5) as client:
        verdicts = Verdicts(client)
        redis.stop()
        try:
            await verdicts.keep(1, "req_lost", TEXT)
            assert (await refusal(verdicts.find(1, "req_lost"))).fault.code == "state_unavailable"
        finally:
            redis.restart()
        assert await verdicts.find(1, "req_lost") is None


@pytest.mark.parametrize("count", [VERDICTS_KEPT - 1, VERDICTS_KEPT, VERDICTS_KEPT + 1])
async def test_of_more_than_a_process_remembers_the_oldest_are_gone(count: int) -> None:
    verdicts = Verdicts()
    for number in range(count):
        await verdicts.keep(1, f"req_{number}", TEXT)
    assert (await verdicts.find(1, "req_0") is None) is (count > VERDICTS_KEPT)
    assert await asyncio.gather(*(verdicts.find(1, f"req_{number}") for number in range(1, count))) == [TEXT] * (
        count - 1
    )
