"""Live sessions: what is said comes back as text, and every second is accounted for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from audio.listener import RATE
from contract.errors import AUDIO_UNREADABLE, BUSY, STATE_UNAVAILABLE, UPSTREAM_ERROR, Fault
from deployments.ingress.flows.realtime import transcriber
from deployments.ingress.flows.realtime.notifier import SessionNotifier
from state.billing.reservation import OpenBill
from tests.api.conftest import Api
from tests.api.live import (
    MODEL,
    PATH,
    TRANSCRIPTION,
    TURN,
    Live,
    hearing,
    hello,
    left_behind,
    listening,
    scripted_speech,
    transcriber_of,
)
from tests.waiting import until

__all__ = ["scripted_speech"]


@pytest.fixture
async def live(api: Api) -> AsyncIterator[Live]:
    async with listening(api) as live:
        yield live


def types(live: Live) -> list[str]:
    return [event["type"] for event in live.events]


def sums_hold(ledger: dict[str, float]) -> bool:
    return ledger["received_s"] == pytest.approx(ledger["speech_s"] + ledger["silence_s"]) and ledger[
        "speech_s"
    ] == pytest.approx(ledger["heard_s"] + ledger["unheard_s"] + ledger["pending_s"])


async def test_a_turn_in_the_order_of_its_events(live: Live) -> None:
    """Times count from the first sound, with the padding; items follow each other."""
    await live.pause(1.024)
    await live.speak(0.512)
    await live.pause()
    assert await live.text() == "hello there"
    assert types(live) == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        f"{TRANSCRIPTION}.delta",
        f"{TRANSCRIPTION}.completed",
    ]
    started, stopped, first, *_ = live.events
    assert (started["audio_start_ms"], stopped["audio_end_ms"]) == (1024 - 300, 1024 + 512 + 200)
    assert len({event["item_id"] for event in live.events if "item_id" in event}) == 1
    await live.speak(0.5)
    await live.pause()
    second = await live.next("input_audio_buffer.committed")
    assert (first["previous_item_id"], second["previous_item_id"]) == (None, first["item_id"])


async def test_each_turn_is_billed_by_whole_seconds_on_one_line_and_silence_is_free(api: Api) -> None:
    engine = hearing(api)
    async with listening(api) as live:
        await live.pause(5)
        assert (await live.end())["silence_s"] == 5
    assert (engine.heard_s, await api.usage()) == ([], [])
    async with listening(api) as live:
        session = await live.update(turn_detection=None)
        assert session["audio"]["input"]["turn_detection"] is None
        for samples in (RATE - 1, RATE, RATE + 1):
            await live.append(bytes(2 * samples))
            await live.send("input_audio_buffer.commit")
            assert await live.text() == "hello there"
        ledger = await live.end()
    assert "input_audio_buffer.speech_started" not in types(live)
    usage = [event["usage"]["seconds"] for event in live.events if event["type"] == f"{TRANSCRIPTION}.completed"]
    assert (usage, ledger["heard_s"]) == ([1, 1, 2], 3)
    assert [line.quantity for line in await api.usage()] == [ledger["billed_s"]] == [4]


async def test_words_come_while_somebody_speaks(api: Api) -> None:
    async def counting(seconds: float) -> str:
        return " ".join(["one", "two", "three", "four", "five", "six"][: max(1, int(seconds))])

    hearing(api, counting)
    async with listening(api) as live:
        await live.speak(4.0)
        await live.next(f"{TRANSCRIPTION}.delta")
        assert "input_audio_buffer.speech_stopped" not in types(live)
        await live.pause()
        text = await live.text()
    assert "".join(e["delta"] for e in live.events if e["type"] == f"{TRANSCRIPTION}.delta") == text


async def test_a_pause_has_the_text_heard_before_the_turn_ends(api: Api) -> None:
    engine = hearing(api)
    async with listening(api) as live:
        await live.speak(0.5)
        await live.pause(0.3)
        await until(lambda: engine.heard_s)
        await live.pause(0.3)
        await live.text()
    assert len(engine.heard_s) == 1


async def test_a_pause_in_a_turn_is_no_end(api: Api) -> None:
    engine = hearing(api)
    async with listening(api) as live:
        await live.speak(0.5)
        await live.pause(0.3)
        await live.speak(0.5)
        await live.pause()
        await live.text()
        ledger = await live.end()
    assert types(live).count("input_audio_buffer.committed") == 1
    assert engine.heard_s[-1] == pytest.approx(1.5, abs=0.07)
    assert ledger["heard_s"] == pytest.approx(1.5, abs=0.07)


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
    assert sums_hold(ledger)
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


@pytest.mark.parametrize("name", ["whisper-1", "gpt-4o-transcribe", "gpt-realtime", "x" * 300, "whisper-large-v3"])
async def test_an_unknown_model_means_the_default_one(api: Api, name: str) -> None:
    chosen = name if name == "whisper-large-v3" else MODEL
    async with listening(api, f"{PATH}&model={name}") as live:
        session = await live.update(transcription={"model": name})
        assert session["audio"]["input"]["transcription"]["model"] == chosen
        await live.pause(0.1)
        await live.update(transcription={"model": name})
    settings = {"type": "transcription", "audio": {"input": {"transcription": {"model": name}}}}
    made = (await api.send("POST", "/v1/realtime/client_secrets", json={"session": settings})).json()
    assert made["session"]["audio"]["input"]["transcription"]["model"] == chosen


async def test_a_session_that_dies_of_an_error_bills_what_was_heard(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*of: object, **more: object) -> None:
        raise ZeroDivisionError

    async with listening(api) as live:
        await live.speak(0.9)
        await live.pause()
        await live.text()
        monkeypatch.setattr(SessionNotifier, "cleared", broken)
        await live.send("input_audio_buffer.clear")
        assert await live.closed() == 1011
    assert [line.quantity for line in await api.usage()] == [2]
    assert left_behind(api) == [0, 0, 0, 0]


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
    assert (last["is_last"], sums_hold(last["ledger"])) == (True, True)
    starts = [event["audio_start_ms"] for event in live.events if "audio_start_ms" in event]
    assert starts[:2] == [0, 1536 - 300]
    assert [piece["why"] for piece in last["ledger"]["unheard"]] == ["state_unavailable"] * 2


async def test_a_ledger_whenever_it_is_wanted_and_at_the_end(live: Live) -> None:
    await live.speak(1.0)
    await live.send("input_audio_buffer.clear")
    await live.next("input_audio_buffer.cleared")
    await live.speak(0.7)
    await live.send("parlance.session.ledger")
    event = await live.next("parlance.session.ledger")
    assert sums_hold(event["ledger"])
    assert (event["is_last"], event["ledger"]["pending_s"]) == (False, pytest.approx(0.7, abs=0.04))
    ledger = await live.end()
    assert f"{TRANSCRIPTION}.completed" in types(live)
    assert sums_hold(ledger)
    assert (ledger["pending_s"], ledger["unheard_s"], ledger["heard_s"]) == (0, 1.0, pytest.approx(0.7, abs=0.04))
    assert [piece["why"] for piece in ledger["unheard"]] == ["cleared"]
    assert await live.closed() == 1000
