"""Live sessions: what is said comes back as text, and every second is accounted for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from audio.listener import RATE
from contract.errors import AUDIO_UNREADABLE, BUSY, STATE_UNAVAILABLE, UPSTREAM_ERROR
from deployments.ingress.flows.realtime import transcriber
from deployments.ingress.flows.realtime.notifier import SessionNotifier
from state.billing.reservation import Account
from tests.api.conftest import Api
from tests.api.live import MODEL, PATH, TRANSCRIPTION, Live, hearing, hello, listening, scripted
from tests.waiting import until


@pytest.fixture
async def api(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    """The same app with api that find speech by rule, and try again at once."""
    monkeypatch.setattr(transcriber, "RETRY_S", (0.0, 0.0, 0.0))
    hearing(api)
    return scripted(api)


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
    await live.pause(0.5)
    await live.speak(0.8)
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
    assert len({event["item_id"] for event in live.events if "item_id" in event}) == 1


async def test_times_count_from_the_first_sound_with_the_padding(live: Live) -> None:
    await live.pause(1.024)
    await live.speak(0.512)
    await live.pause()
    await live.text()
    started, stopped = live.events[0], live.events[1]
    assert started["audio_start_ms"] == 1024 - 300
    assert stopped["audio_end_ms"] == 1024 + 512 + 200


async def test_items_follow_each_other(live: Live) -> None:
    for _ in range(2):
        await live.speak(0.5)
        await live.pause()
        await live.text()
    first, second = (event for event in live.events if event["type"] == "input_audio_buffer.committed")
    assert (first["previous_item_id"], second["previous_item_id"]) == (None, first["item_id"])


async def test_silence_costs_no_call_and_no_money(api: Api) -> None:
    engine = hearing(api)
    async with listening(api) as live:
        await live.pause(5)
        ledger = await live.end()
    assert engine.heard_s == []
    assert await api.usage() == []
    assert (ledger["received_s"], ledger["silence_s"]) == (5, 5)


async def test_each_turn_is_billed_by_whole_seconds_on_one_line(api: Api) -> None:
    async with listening(api) as live:
        await live.update(turn_detection=None)
        for samples in (RATE - 1, RATE, RATE + 1):
            await live.append(bytes(2 * samples))
            await live.send("input_audio_buffer.commit")
            await live.text()
        ledger = await live.end()
    usage = [event["usage"]["seconds"] for event in live.events if event["type"] == f"{TRANSCRIPTION}.completed"]
    assert usage == [1, 1, 2]
    assert [line.quantity for line in await api.usage()] == [ledger["billed_s"]] == [4]


async def test_a_ledger_whenever_it_is_wanted(live: Live) -> None:
    await live.speak(1.0)
    await live.send("parlance.session.ledger")
    event = await live.next("parlance.session.ledger")
    assert sums_hold(event["ledger"])
    assert (event["is_last"], event["ledger"]["pending_s"]) == (False, pytest.approx(1.0, abs=0.04))


async def test_the_end_writes_down_what_is_open(live: Live) -> None:
    await live.speak(0.7)
    ledger = await live.end()
    assert f"{TRANSCRIPTION}.completed" in types(live)
    assert sums_hold(ledger)
    assert (ledger["pending_s"], ledger["unheard_s"], ledger["heard_s"]) == (0, 0, pytest.approx(0.7, abs=0.04))
    await live.socket.wait_closed()
    assert live.socket.close_code == 1000


async def test_turns_that_the_client_commits(live: Live) -> None:
    session = await live.update(turn_detection=None)
    assert session["audio"]["input"]["turn_detection"] is None
    await live.speak(0.3)
    await live.pause(0.9)
    await live.send("input_audio_buffer.commit")
    assert await live.text() == "hello there"
    assert "input_audio_buffer.speech_started" not in types(live)
    assert (await live.end())["heard_s"] == pytest.approx(1.2)


async def test_what_is_cleared_is_listed_as_unheard(live: Live) -> None:
    await live.speak(1.0)
    await live.send("input_audio_buffer.clear")
    await live.next("input_audio_buffer.cleared")
    ledger = await live.end()
    assert (ledger["heard_s"], ledger["unheard_s"]) == (0, 1.0)
    assert [piece["why"] for piece in ledger["unheard"]] == ["cleared"]


async def test_words_come_while_somebody_speaks(api: Api) -> None:
    words = ["one", "two", "three", "four", "five", "six"]

    async def counting(seconds: float) -> str:
        return " ".join(words[: max(1, int(seconds))])

    hearing(api, counting)
    async with listening(scripted(api)) as live:
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


async def test_an_engine_that_fails_costs_time_and_no_words(api: Api) -> None:
    failures = [1, 1, 1]

    async def failing(seconds: float) -> str:
        if failures:
            failures.pop()
            raise UPSTREAM_ERROR()
        return "all of it"

    hearing(api, failing)
    async with listening(api) as live:
        await live.speak(0.5)
        await live.pause()
        assert await live.text() == "all of it"
        assert (await live.end())["unheard_s"] == 0


async def test_a_busy_engine_is_waited_for(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcriber, "BUSY_S", 0.0)
    refusals = [1] * 20

    async def busy(seconds: float) -> str:
        if refusals:
            refusals.pop()
            raise BUSY("later")
        return "at last"

    hearing(api, busy)
    async with listening(api) as live:
        await live.speak(0.5)
        await live.pause()
        assert await live.text() == "at last"


async def test_what_no_engine_can_do_is_tried_once(api: Api) -> None:
    async def refusing(seconds: float) -> str:
        raise AUDIO_UNREADABLE("no")

    engine = hearing(api, refusing)
    async with listening(api) as live:
        await live.update(turn_detection=None)
        await live.speak(0.5)
        await live.send("input_audio_buffer.commit")
        assert (await live.next(f"{TRANSCRIPTION}.failed"))["error"]["code"] == "audio_unreadable"
    assert len(engine.heard_s) == 1


async def test_an_engine_that_never_works_leaves_an_unheard_piece(api: Api) -> None:
    async def broken(seconds: float) -> str:
        raise UPSTREAM_ERROR()

    engine = hearing(api, broken)
    async with listening(api) as live:
        await live.speak(0.512)
        await live.pause()
        failed = await live.next(f"{TRANSCRIPTION}.failed")
        assert failed["error"]["code"] == "upstream_error"
        engine.script = hello
        assert await live.is_well()
        ledger = await live.end()
    assert sums_hold(ledger)
    assert ledger["unheard"] == [{"start_ms": 0, "end_ms": 712, "why": "upstream_error"}]


async def test_what_the_engine_is_asked(api: Api) -> None:
    engine = hearing(api)
    async with listening(api) as live:
        await live.update(transcription={"language": "de-DE", "prompt": "Parlance"})
        await live.is_well()
    job = engine.jobs[-1]
    assert (job.language, job.owner) == ("de", "org-1")


async def test_the_first_sound_wakes_the_engine(api: Api) -> None:
    engine = api.engine(api.service.catalog.transcription[MODEL].deployment)
    async with listening(api) as live:
        await live.update(transcription={"model": "whisper-large-v3"})
        await live.update(transcription={"model": MODEL})
        assert engine.warmed == 0
        await live.pause(0.1)
        await live.end()
    assert engine.warmed == 1
    assert api.engine(api.service.catalog.transcription["whisper-large-v3"].deployment).warmed == 0


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


async def test_a_client_that_leaves_pays_for_what_was_heard(api: Api) -> None:
    async with listening(api) as live:
        await live.speak(0.9)
        await live.pause()
        await live.text()
        await live.speak(1.0)
        live.socket.transport.abort()
    assert [line.quantity for line in await api.usage()] == [2]
    assert len(api.service.live) == 0
    assert api.service.live.sound_bytes.total == 0
    assert api.service.live.listener.open == 0  # type: ignore[attr-defined]


async def counting(seconds: float) -> str:
    return " ".join(str(number) for number in range(max(2, int(seconds * 2))))


@pytest.mark.parametrize("end", ["input_audio_buffer.clear", "leave"])
async def test_words_that_were_told_are_billed_though_their_turn_is_dropped(api: Api, end: str) -> None:
    hearing(api, counting)
    async with listening(api) as live:
        await live.speak(4.0)
        await live.next(f"{TRANSCRIPTION}.delta")
        if end == "leave":
            live.socket.transport.abort()
        else:
            await live.send(end)
            ledger = await live.end()
            assert sums_hold(ledger)
            assert (ledger["heard_s"], ledger["pending_s"]) == (pytest.approx(4.0, abs=0.04), 0)
    assert [line.quantity for line in await api.usage()] == [4]


async def test_a_session_that_dies_of_an_error_bills_what_was_heard(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*of: object, **more: object) -> None:
        raise ZeroDivisionError

    async with listening(api) as live:
        await live.speak(0.9)
        await live.pause()
        await live.text()
        monkeypatch.setattr(SessionNotifier, "cleared", broken)
        await live.send("input_audio_buffer.clear")
        await live.socket.wait_closed()
    assert live.socket.close_code == 1011
    assert [line.quantity for line in await api.usage()] == [2]
    assert (len(api.service.live), api.service.live.sound_bytes.total) == (0, 0)


async def test_a_turn_that_cannot_be_paid_hides_none_behind_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    once = [STATE_UNAVAILABLE()]

    async def unavailable_once(account: Account, **most: int) -> None:
        if once:
            raise once.pop()

    monkeypatch.setattr(Account, "expect", unavailable_once)
    async with listening(api) as live:
        turn = b"\1\0" * 8192 + bytes(2 * 16384)
        await live.append(turn * 2)
        assert (await live.next(f"{TRANSCRIPTION}.failed"))["error"]["code"] == "state_unavailable"
        assert (await live.error())["code"] == "state_unavailable"
        assert await live.text() == "hello there"
        ledger = await live.end()
    assert sums_hold(ledger)
    starts = [event["audio_start_ms"] for event in live.events if "audio_start_ms" in event]
    assert starts == [0, 1536 - 300]
    assert [piece["why"] for piece in ledger["unheard"]] == ["state_unavailable"]


async def test_a_session_ends_though_its_last_turn_cannot_be_paid(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unavailable(account: Account, **most: int) -> None:
        raise STATE_UNAVAILABLE()

    monkeypatch.setattr(Account, "expect", unavailable)
    async with listening(api) as live:
        await live.speak(0.7)
        await live.send("parlance.session.end")
        await live.next(f"{TRANSCRIPTION}.failed")
        assert (await live.error())["code"] == "state_unavailable"
        assert (await live.next("parlance.session.ledger"))["is_last"]
        await live.socket.wait_closed()
    assert live.socket.close_code == 1000
