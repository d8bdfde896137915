"""Money of live sessions: work that an engine has begun is owed, whatever its client does then; failures are free."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from contract.access import Scope
from contract.errors import ORG_SPEND_LIMIT, UPSTREAM_ERROR, UPSTREAM_TIMEOUT, Fault
from deployments.ingress.flows.realtime import session, transcriber
from deployments.ingress.flows.realtime.notifier import SessionNotifier
from deployments.ingress.flows.realtime.turns import LiveTurn
from state.accounts import api_keys
from state.billing.reservation import Account
from state.rates import RateVerdict
from tests.api.conftest import Api
from tests.api.live import (
    MODEL,
    TRANSCRIPTION,
    Live,
    ScriptedStream,
    ScriptedTranscriber,
    hearing,
    hello,
    listening,
    scripted,
)
from tests.waiting import until


@pytest.fixture
async def api(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setattr(transcriber, "RETRY_S", (0.0, 0.0, 0.0))
    hearing(api)
    return scripted(api)


async def billed(api: Api) -> list[int]:
    return [line.quantity for line in await api.usage()]


def stuck(api: Api) -> ScriptedTranscriber:
    """Has every call of the transcriber begin, and never end."""
    return hearing(api, lambda seconds: asyncio.Event().wait())  # type: ignore[arg-type,return-value]


async def revoke(api: Api, key: str) -> None:
    await api.state.database.run(partial(api_keys.revoke, public_id=key.split("_")[1], now_s=1))


async def leave(live: Live) -> None:
    live.socket.transport.abort()


async def clear(live: Live) -> None:
    await live.send("input_audio_buffer.clear")
    await live.next("input_audio_buffer.cleared")
    assert (await live.end())["billed_s"] == 3


@pytest.mark.parametrize("give_up", [leave, clear])
async def test_a_draft_that_has_begun_is_owed(api: Api, give_up: Callable[[Live], Awaitable[None]]) -> None:
    engine = stuck(api)
    async with listening(api) as live:
        await live.speak(2.5)
        await until(lambda: engine.heard_s)
        await live.speak(2.0)
        await give_up(live)
    assert await billed(api) == [3]


async def test_a_turn_that_has_begun_is_owed_by_a_client_that_leaves(api: Api) -> None:
    engine = stuck(api)
    async with listening(api) as live:
        await live.update(turn_detection=None)
        await live.speak(3.2)
        await live.send("input_audio_buffer.commit")
        await until(lambda: engine.heard_s)
        await leave(live)
    assert await billed(api) == [4]


async def test_a_turn_that_has_begun_is_owed_though_its_key_is_revoked(
    api: Api, pass_cache_time: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "KEY_CACHE_S", 0.01)
    engine, key = stuck(api), await api.key(*Scope)
    async with listening(api, key=key) as live:
        await live.speak(2.5)
        await until(lambda: engine.heard_s)
        await revoke(api, key)
        pass_cache_time()
        await live.socket.wait_closed()
    assert await billed(api) == [3]


async def test_a_turn_that_waits_for_an_engine_is_free(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, waits = api.engine(api.service.catalog.transcription[MODEL].deployment), asyncio.Event()

    async def cold(within_s: float, *, timings: object) -> None:
        waits.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(engine, "ready", cold)
    async with listening(api) as live:
        await live.speak(2.5)
        await waits.wait()
        await leave(live)
    assert await billed(api) == []


async def test_drafts_and_their_turn_are_owed_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcriber, "DRAFT_EVERY_S", 0.0)
    engine = hearing(api)
    async with listening(api) as live:
        while len(engine.heard_s) < 3:
            await live.speak(0.4)
            await live.send("parlance.session.ledger")
            await live.next("parlance.session.ledger")
        await live.pause()
        await live.text()
        ledger = await live.end()
    assert await billed(api) == [ledger["billed_s"]] == [math.ceil(ledger["heard_s"])]


@pytest.mark.parametrize("fault", [UPSTREAM_ERROR, UPSTREAM_TIMEOUT])
@pytest.mark.parametrize("is_reported", [True, False])
async def test_a_failure_costs_what_was_reported(api: Api, fault: Fault, is_reported: bool) -> None:
    go = asyncio.Event()

    async def fails_later(seconds: float) -> str:
        if seconds < 3 and is_reported:
            return "one two three"
        await go.wait()
        raise fault()

    hearing(api, fails_later)
    async with listening(api) as live:
        await live.speak(2.5)
        if is_reported:
            await live.next(f"{TRANSCRIPTION}.delta")
        await live.speak(2.0)
        await live.pause()
        go.set()
        assert (await live.next(f"{TRANSCRIPTION}.failed"))["error"]["code"] == fault.code
        assert (await live.end())["billed_s"] == (3 if is_reported else 0)
    assert await billed(api) == ([3] if is_reported else [])


@pytest.mark.parametrize("fault", [UPSTREAM_ERROR, UPSTREAM_TIMEOUT])
async def test_a_time_limit_is_no_gift(api: Api, fault: Fault) -> None:
    async def fails_later(seconds: float) -> str:
        if seconds < 3:
            return "one"  # a draft of one word reports none: it may be half a word
        raise fault()

    engine = hearing(api, fails_later)
    async with listening(api) as live:
        await live.speak(2.5)
        await until(lambda: engine.heard_s)
        await live.speak(2.0)
        await live.pause()
        await live.next(f"{TRANSCRIPTION}.failed")
    assert await billed(api) == ([3] if fault is UPSTREAM_TIMEOUT else [])


async def test_no_draft_begins_without_its_price(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    async def spent(account: Account, **most: int) -> None:
        asked.append(most["audio_seconds"])
        raise ORG_SPEND_LIMIT("spent")

    monkeypatch.setattr(Account, "expect", spent)
    engine = hearing(api)
    async with listening(api) as live:
        await live.speak(2.5)
        await until(lambda: asked)
        await live.pause()
        assert (await live.next(f"{TRANSCRIPTION}.failed"))["error"]["code"] == "org_spend_limit"
        await live.socket.wait_closed()
    assert live.socket.close_code == 1008
    assert (engine.heard_s, await billed(api)) == ([], [])


@dataclass
class ScriptedRate:
    """Allows so many requests, and then none until it may again."""

    left: int
    hits: int = 0
    allowed_again: asyncio.Event = field(default_factory=asyncio.Event)

    async def hit(self, caller: object) -> RateVerdict:
        self.hits += 1
        is_allowed = self.allowed_again.is_set() or self.left > 0
        self.left -= is_allowed
        return RateVerdict(20, max(0, self.left), 0.01, is_allowed)  # type: ignore[arg-type]


@pytest.mark.parametrize("commits", [1, 2, 3])
async def test_a_commit_counts_as_a_request(api: Api, monkeypatch: pytest.MonkeyPatch, commits: int) -> None:
    async with listening(api) as live:
        await live.update(turn_detection=None)
        rate = ScriptedRate(2)
        monkeypatch.setattr(api.state.rates, "hit", rate.hit)
        for number in range(commits):
            await live.speak(0.2)
            await live.send("input_audio_buffer.commit", event_id="mine")
            if number < 2:
                await live.text()
        if commits == 3:
            error = await live.error()
            assert (error["code"], error["event_id"]) == ("rate_limit_exceeded", "mine")
            assert "a turn counts as a request" in error["message"]
            assert error["retry_after_ms"] > 0
            await live.speak(0.2)
            rate.allowed_again.set()
            await live.send("input_audio_buffer.commit")
            await live.text()
        assert (await live.end())["heard_s"] == pytest.approx(0.2 * commits + (0.2 if commits == 3 else 0))
    assert await billed(api) == [commits]


async def test_a_turn_beyond_the_rate_waits_with_its_sound(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = hearing(api)
    async with listening(api) as live:
        rate = ScriptedRate(0)
        monkeypatch.setattr(api.state.rates, "hit", rate.hit)
        await live.speak(0.5)
        await live.pause()
        await live.next("conversation.item.done")
        assert (await live.error())["code"] == "rate_limit_exceeded"
        await until(lambda: rate.hits > 3)
        rate.allowed_again.set()
        assert await live.text() == "hello there"
        assert (await live.end())["unheard_s"] == 0
    assert [event["type"] for event in live.events].count("error") == 1
    assert engine.heard_s
    assert await billed(api) == [1]


async def test_a_session_that_ends_waits_no_longer_than_a_window_for_the_rate(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "RATE_WINDOW_S", 0.0)
    async with listening(api) as live:
        rate = ScriptedRate(1)
        monkeypatch.setattr(api.state.rates, "hit", rate.hit)
        for _ in range(3):
            await live.speak(0.5)
            await live.pause()
        await live.send("parlance.session.end")
        seen = [json.loads(text) async for text in live.socket]
    codes = [event["error"]["code"] for event in seen if event["type"] == f"{TRANSCRIPTION}.failed"]
    assert codes == 2 * ["rate_limit_exceeded"]
    assert (seen[-1]["ledger"]["pending_s"], len(seen[-1]["ledger"]["unheard"])) == (0, 2)
    assert await billed(api) == [1]


async def test_a_turn_whose_report_fails_does_not_lose_the_next(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    report, broken = SessionNotifier._report, [ZeroDivisionError()]

    async def breaks_once(self: SessionNotifier, turn: LiveTurn, step: str, **members: object) -> None:
        if step == "completed" and broken:
            raise broken.pop()
        await report(self, turn, step, **members)

    monkeypatch.setattr(SessionNotifier, "_report", breaks_once)
    async with listening(api) as live:
        turn = b"\1\0" * 8192 + bytes(2 * 16384)
        await live.append(turn * 2)
        assert (await live.next(f"{TRANSCRIPTION}.failed"))["error"]["code"] == "internal_error"
        assert await live.text() == "hello there"
        assert (await live.end())["pending_s"] == 0


async def test_the_end_of_a_session_waits_though_nothing_can_be_reported(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = SessionNotifier._report

    def broken(*of: object) -> None:
        raise ZeroDivisionError

    async def breaks(self: SessionNotifier, turn: LiveTurn, step: str, **members: object) -> None:
        if step == "completed":
            broken()
        await report(self, turn, step, **members)

    monkeypatch.setattr(SessionNotifier, "_report", breaks)
    monkeypatch.setattr(SessionNotifier, "failed", broken)
    engine = hearing(api)
    async with listening(api) as live:
        await live.append((b"\1\0" * 8192 + bytes(2 * 16384)) * 3)
        assert (await live.end())["pending_s"] == 0
    assert len(engine.heard_s) >= 3


async def test_a_revoked_key_ends_a_silent_session(
    api: Api, pass_cache_time: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "KEY_CACHE_S", 0.01)
    key = await api.key(*Scope)
    async with listening(api, key=key) as live:
        await revoke(api, key)
        pass_cache_time()
        assert (await live.error())["code"] == "invalid_api_key"
        await live.socket.wait_closed()
    assert live.socket.close_code == 1008


async def test_the_end_of_a_session_waits_for_the_sound_before_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    listens, go, listen = asyncio.Event(), asyncio.Event(), ScriptedStream.listen

    async def slow(stream: ScriptedStream, sound: bytes) -> object:
        listens.set()
        await go.wait()
        return await listen(stream, sound)

    monkeypatch.setattr(ScriptedStream, "listen", slow)
    hearing(api, hello)
    async with listening(api) as live:
        await live.speak(0.5)
        await listens.wait()
        (place,) = api.service.live._places
        place.session.end("time_limit")  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        go.set()
        ledger = (await live.next("parlance.session.ledger"))["ledger"]
        assert (ledger["received_s"], ledger["pending_s"]) == (0.5, 0)
        await live.socket.wait_closed()
