"""Money of live sessions: work that an engine has begun is owed, whatever its client does then; failures are free."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import pytest

from audio.listener import Frames
from contract.errors import ORG_SPEND_LIMIT, UPSTREAM_ERROR, UPSTREAM_TIMEOUT, Fault
from deployments.ingress.flows.realtime import session
from deployments.ingress.flows.realtime.notifier import SessionNotifier
from state.billing.reservation import OpenBill, Reservation
from state.rates import RateVerdict
from tests.api.conftest import Api
from tests.api.live import (
    TRANSCRIPTION,
    TURN,
    ScriptedStream,
    hearing,
    listening,
    scripted_speech,
    transcriber_of,
)
from tests.waiting import until

__all__ = ["scripted_speech"]


async def billed(api: Api) -> list[int]:
    return [line.quantity for line in await api.usage()]


async def test_a_turn_that_waits_for_an_engine_is_free(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = asyncio.Event()

    async def cold(within_s: float, *, timings: object) -> None:
        waits.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(transcriber_of(api), "ready", cold)
    async with listening(api) as live:
        await live.speak(2.5)
        await waits.wait()
        live.socket.transport.abort()
    assert await billed(api) == []


@pytest.mark.parametrize(
    ("fault", "draft", "owed_s"),
    [
        (UPSTREAM_ERROR, "one two three", 3),
        (UPSTREAM_TIMEOUT, "one two three", 3),
        (UPSTREAM_ERROR, "one", 0),  # a draft of one word reports none: it may be half a word
        (UPSTREAM_TIMEOUT, "one", 3),
        (UPSTREAM_ERROR, None, 0),
        (UPSTREAM_TIMEOUT, None, 0),
    ],
)
async def test_a_failure_costs_what_was_reported_and_a_time_limit_what_has_begun(
    api: Api, fault: Fault, draft: str | None, owed_s: int
) -> None:
    go = asyncio.Event()

    async def fails_later(seconds: float) -> str:
        if seconds < 3 and draft:
            return draft
        await go.wait()
        raise fault()

    engine = hearing(api, fails_later)
    async with listening(api) as live:
        await live.speak(2.5)
        if owed_s and fault is UPSTREAM_ERROR:
            await live.next(f"{TRANSCRIPTION}.delta")
        await until(lambda: engine.heard_s)
        await live.speak(2.0)
        await live.pause()
        go.set()
        assert (await live.next(f"{TRANSCRIPTION}.failed"))["error"]["code"] == fault.code
        assert (await live.end())["billed_s"] == owed_s
    assert await billed(api) == [owed_s] * bool(owed_s)


async def test_no_draft_begins_without_its_price(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    async def spent(bill: OpenBill, **most: int) -> None:
        asked.append(most["audio_seconds"])
        raise ORG_SPEND_LIMIT("spent")

    monkeypatch.setattr(OpenBill, "expect", spent)
    engine = hearing(api)
    async with listening(api) as live:
        await live.speak(2.5)
        await until(lambda: asked)
        await live.pause()
        assert (await live.next(f"{TRANSCRIPTION}.failed"))["error"]["code"] == "org_spend_limit"
        await live.socket.wait_closed()
    assert live.socket.close_code == 1008
    assert (engine.heard_s, await billed(api)) == ([], [])


async def test_a_session_whose_end_is_cancelled_keeps_no_funds(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    voided = list[Reservation]()
    void = Reservation.void

    async def cancelled(stream: ScriptedStream) -> Frames:
        raise asyncio.CancelledError

    async def noted(reservation: Reservation) -> None:
        voided.append(reservation)
        await void(reservation)

    monkeypatch.setattr(Reservation, "void", noted)
    monkeypatch.setattr(ScriptedStream, "end", cancelled)
    async with listening(api) as live:
        await live.speak(0.5)
        await until(lambda: len(api.service.live))
        live.socket.transport.abort()
        await until(lambda: not len(api.service.live))
    assert len(voided) == 1


@dataclass
class ScriptedRate:
    """Allows `left` requests, and then none until it may again."""

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


@pytest.mark.parametrize("is_for_good", [False, True])
async def test_a_turn_that_breaks_after_its_text_loses_neither_the_next_nor_the_end(
    api: Api, monkeypatch: pytest.MonkeyPatch, is_for_good: bool
) -> None:
    progress, breaks = OpenBill.progress, [True]

    async def broken(bill: OpenBill, **used: int) -> None:
        if breaks:
            breaks[:] = [True] * is_for_good
            raise ZeroDivisionError
        await progress(bill, **used)

    async def unreported(*of: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(OpenBill, "progress", broken)
    if is_for_good:
        monkeypatch.setattr(SessionNotifier, "failed", unreported)
    engine = hearing(api)
    async with listening(api) as live:
        await live.append(TURN * 3)
        if not is_for_good:
            assert await live.text() == "hello there"
            assert (await live.next(f"{TRANSCRIPTION}.failed"))["error"]["code"] == "internal_error"
            assert await live.text() == "hello there"
        assert (await live.end())["pending_s"] == 0
    assert len(engine.heard_s) >= 3
