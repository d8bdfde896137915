"""Live sessions: what is said comes back as text, and work that an engine has begun is owed; failures are free."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from audio.listener import Frames
from contract.errors import AUDIO_UNREADABLE, BUSY, STATE_UNAVAILABLE, UPSTREAM_ERROR, Fault
from deployments.ingress.flows.realtime import session, transcriber
from deployments.ingress.flows.realtime.notifier import SessionNotifier
from state.billing.reservation import OpenBill, Reservation
from state.rates import RateVerdict
from tests.api.conftest import Api
from tests.api.live import (
    MODEL,
    PATH,
    TRANSCRIPTION,
    TURN,
    ScriptedStream,
    hearing,
    hello,
    listening,
    scripted_speech,
    transcriber_of,
)
from tests.waiting import until

__all__ = ["scripted_speech"]


@pytest.mark.parametrize("pieces", ["one two three four five six", "今日は。 良い 天気。 とても 暑い です。"])
async def test_words_come_while_somebody_speaks(api: Api, pieces: str) -> None:
    """A draft without spaces could not be continued once it is revised, so its words come in the end."""

    async def counting(seconds: float) -> str:
        return "\n".join(pieces.split()[: max(1, int(seconds))])

    hearing(api, counting)
    async with listening(api) as live:
        await live.speak(4.0)
        if pieces.isascii():
            await live.next(f"{TRANSCRIPTION}.delta")
            assert "input_audio_buffer.speech_stopped" not in [event["type"] for event in live.events]
        await live.pause()
        text = await live.text()
    assert "".join(e["delta"] for e in live.events if e["type"] == f"{TRANSCRIPTION}.delta") == text
    assert text == (" " if pieces.isascii() else "").join(pieces.split()[:4])


async def test_a_pause_has_the_text_heard_before_the_turn_ends(api: Api) -> None:
    engine = hearing(api)
    async with listening(api) as live:
        await live.speak(0.5)
        await live.pause(0.3)
        await until(lambda: engine.heard_s)
        await live.pause(0.3)
        await live.text()
    assert len(engine.heard_s) == 1


async def test_the_end_of_a_turn_cancels_its_unfinished_draft(api: Api) -> None:
    async def hanging(seconds: float) -> str:
        return await hello(seconds) if len(engine.heard_s) > 1 else await asyncio.Future()

    engine = hearing(api, hanging)
    async with listening(api) as live:
        await live.speak(4.0)
        await until(lambda: engine.heard_s)
        await live.pause()
        assert await live.text() == "hello there"


@pytest.mark.parametrize(
    ("fault", "failures", "calls"),
    [(UPSTREAM_ERROR, 3, 4), (BUSY, 20, 21), (UPSTREAM_ERROR, 4, 4), (AUDIO_UNREADABLE, 1, 1)],
    ids=["fails", "is busy", "fails for good", "cannot"],
)
async def test_an_engine_that_fails_or_is_busy_is_asked_again(
    api: Api, monkeypatch: pytest.MonkeyPatch, fault: Fault, failures: int, calls: int
) -> None:
    monkeypatch.setattr(transcriber, "BUSY_S", 0.0)

    async def failing(seconds: float) -> str:
        if len(engine.heard_s) <= failures:
            raise fault("a reason")
        return "all of it"

    engine = hearing(api, failing)
    async with listening(api) as live:
        await live.update(turn_detection=None)
        await live.speak(0.512)
        await live.send("input_audio_buffer.commit")
        if calls > failures:
            assert await live.text() == "all of it"
        else:
            assert (await live.next(f"{TRANSCRIPTION}.failed"))["error"]["code"] == fault.code
        assert len(engine.heard_s) == calls
        await live.update(turn_detection={"type": "server_vad"})
        engine.script = hello
        assert await live.is_well()
        ledger = await live.end()
    lost = [] if calls > failures else [{"start_ms": 0, "end_ms": 512, "why": fault.code}]
    assert ledger["unheard"] == lost


async def test_the_first_sound_wakes_the_engine_which_is_asked_as_the_session_says(api: Api) -> None:
    engine = hearing(api)
    async with listening(api) as live:
        await live.update(transcription={"model": "whisper-large-v3"})
        await live.update(transcription={"model": MODEL, "language": "de-DE", "prompt": "Parlance"})
        assert transcriber_of(api).warmed == 0
        assert await live.is_well()
    assert [transcriber_of(api, model).warmed for model in (MODEL, "whisper-large-v3")] == [1, 0]
    assert (engine.jobs[-1].language, engine.jobs[-1].owner) == ("de", "org-1")


async def test_an_unknown_model_means_the_default_one(api: Api) -> None:
    for name in ("whisper-1", "gpt-4o-transcribe", "gpt-realtime", "x" * 300, "whisper-large-v3"):
        chosen = name if name == "whisper-large-v3" else MODEL
        async with listening(api, f"{PATH}&model={name}") as live:
            session = await live.update(transcription={"model": name})
            assert session["audio"]["input"]["transcription"]["model"] == chosen
            await live.pause(0.1)
            await live.update(transcription={"model": name})
        settings = {"type": "transcription", "audio": {"input": {"transcription": {"model": name}}}}
        made = (await api.send("POST", "/v1/realtime/client_secrets", json={"session": settings})).json()
        assert made["session"]["audio"]["input"]["transcription"]["model"] == chosen


async def test_a_turn_that_cannot_be_paid_hides_none_behind_it_and_ends_no_session(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: list[Any] = [STATE_UNAVAILABLE(), None, STATE_UNAVAILABLE()]

    async def unavailable(bill: OpenBill, **most: int) -> None:
        if refusals and (error := refusals.pop(0)):
            raise error

    monkeypatch.setattr(OpenBill, "expect", unavailable)
    async with listening(api) as live:
        await live.append(TURN * 2)
        assert (await live.next(f"{TRANSCRIPTION}.failed"))["error"]["code"] == "state_unavailable"
        assert (await live.error())["code"] == "state_unavailable"
        assert await live.text() == "hello there"
        await live.speak(0.7)
        await live.send("parlance.session.end")
        await live.next(f"{TRANSCRIPTION}.failed")
        assert (await live.error())["code"] == "state_unavailable"
        last = await live.next("parlance.session.ledger")
        assert await live.closed() == 1000
    assert last["is_last"]
    starts = [event["audio_start_ms"] for event in live.events if "audio_start_ms" in event]
    assert starts[:2] == [0, 1536 - 300]
    assert [piece["why"] for piece in last["ledger"]["unheard"]] == ["state_unavailable"] * 2


async def test_the_console_shows_a_session_once_it_has_ended(api: Api) -> None:
    async def shown() -> Any:
        return (await api.send("GET", "/console/requests")).json()["data"]

    async with listening(api):
        assert await shown() == []
    await until(shown)
    (session,) = await shown()
    assert [session[field] for field in ("route", "status", "outcome")] == ["/v1/realtime", 101, "ok"]


async def billed(api: Api) -> list[int]:
    return [line.quantity for line in await api.usage()]


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
