"""What speech that is heard back may hold, and what becomes of it: who leaves, who asks for much, long sounds."""

from __future__ import annotations

import asyncio
import io
import wave
from contextlib import aclosing
from threading import get_ident
from typing import Any

import pytest

import deployments.ingress.verifier
from audio.sandbox import NotAudio, QueueFull, SharesExhausted, Sound, TooLong
from contract.limits import BODIES_OF_KEY_BYTES, REQUESTS_PER_STREAM
from tests.api.conftest import Api
from tests.api.ears import TEXT, THREE, hears, speak, verdict
from tests.waiting import until
from text.spoken import Comparison, compare

pytestmark = pytest.mark.usefixtures("good_ears")


@pytest.mark.parametrize(("piece_s", "hint", "seconds"), [(10, THREE, None), (10.1, "Ferreira sings.", 10.1)])
async def test_of_a_sound_of_more_than_a_window_only_what_differs_is_heard_again(
    api: Api, monkeypatch: pytest.MonkeyPatch, piece_s: float, hint: str, seconds: float | None
) -> None:
    async def decoded(sound: bytes, rate: int, *_: Any) -> Sound:
        return Sound(bytes(2 * rate * 60), rate, 60.0)

    monkeypatch.setattr(deployments.ingress.verifier, "decode", decoded)
    ears = hears(api, "The train leaves.|The dog barks.|Nobody claps.")
    ears.hinted, ears.piece_s = hint, piece_s
    body = await verdict(api, await speak(api, text=THREE))
    assert (body["verdict"], body["heard"], ears.hints) == ("faithful", THREE, [hint])
    if seconds:
        with wave.open(io.BytesIO(ears.parts[0])) as part:
            assert part.getnframes() / part.getframerate() == pytest.approx(seconds, abs=0.001)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (QueueFull("files wait"), "busy"),
        (SharesExhausted("recordings are held"), "busy"),
        (NotAudio("it is empty"), "ears_failed"),
        (TooLong(1), "ears_failed"),
    ],
)
async def test_a_part_that_cannot_be_cut_out_is_not_judged(
    api: Api, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    async def fails(*_: Any) -> Sound:
        raise error

    monkeypatch.setattr(deployments.ingress.verifier, "decode", fails)
    hears(api, "The train leaves.|The dog barks.|Nobody claps.").piece_s = 20
    assert (await verdict(api, await speak(api, text=THREE)))["reason"] == reason


async def test_of_three_attempts_two_are_in_memory(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    ears, bytes_of = hears(api, "good", "good morning", "good morning, listeners"), api.service.concurrency.body_bytes
    totals = list[int]()

    def noted(*arguments: Any) -> Comparison:
        totals.append(bytes_of.total)
        return compare(*arguments)

    monkeypatch.setattr(deployments.ingress.verifier, "compare", noted)
    reply = await speak(api, "retry")
    one = len(ears.jobs[0].audio)
    asked = totals[0] - one
    assert reply.headers["x-voice-attempts"] == "3"
    assert {round((total - asked) / one) for total in totals} == {1, 2}
    assert bytes_of.total == 0


async def test_who_leaves_while_an_attempt_is_heard_leaves_nothing_behind(api: Api) -> None:
    ears = hears(api, TEXT)
    ears.go.clear()
    asking = asyncio.create_task(speak(api, "retry"))
    await until(lambda: ears.callers)
    asking.cancel()
    await asyncio.wait({asking})
    await until(lambda: not api.service.concurrency.calls.total)
    assert (api.service.concurrency.body_bytes.total, api.service.state.rates.open_streams) == (0, 0)
    assert len(ears.callers) == 1


async def test_sound_for_which_there_is_no_room_is_not_held(api: Api) -> None:
    ears, caller = hears(api, TEXT), await api.caller()
    with api.service.concurrency.reply(caller, BODIES_OF_KEY_BYTES):
        # The request itself has room, the sound has none.
        api.service.concurrency.body_bytes.take(caller, -5000)
        reply = await speak(api, text="word " * 700)
        assert (await verdict(api, reply))["reason"] == "busy"
        api.service.concurrency.body_bytes.take(caller, 5000)
    assert not ears.jobs
    assert api.service.concurrency.body_bytes.total == 0


@pytest.mark.parametrize(("more", "is_heard"), [(-1, True), (0, True), (1, False)])
async def test_sound_that_is_heard_is_one_of_the_requests_that_a_key_may_have_running(
    api: Api, more: int, is_heard: bool
) -> None:
    ears, caller, calls = hears(api, TEXT), await api.caller(), api.service.concurrency.calls
    ears.go.clear()
    # Beside these there is the speech, and the hearing.
    running = caller.tariff.concurrent_streams * REQUESTS_PER_STREAM - 2 + more
    calls.take(caller, running)
    reply = await speak(api)
    calls.take(caller, -running)
    if is_heard:
        await until(lambda: ears.callers)
        assert calls.total == 1
    ears.go.set()
    assert (await verdict(api, reply))["reason"] == (None if is_heard else "busy")
    assert calls.total == 0


async def test_a_long_comparison_holds_up_nobody(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set[int]()

    def noted(*arguments: Any) -> Comparison:
        threads.add(get_ident())
        return compare(*arguments)

    monkeypatch.setattr(deployments.ingress.verifier, "compare", noted)
    hears(api, TEXT)
    assert (await verdict(api, await speak(api)))["verdict"] == "faithful"
    assert threads
    assert get_ident() not in threads


async def test_a_client_that_leaves_gets_no_verdict_of_half_a_sound(api: Api) -> None:
    from contract.speech.request import SpeechRequest
    from deployments.ingress.context import RequestContext, Trace
    from deployments.ingress.flows import speech, verdicts

    ears, caller = hears(api, TEXT), await api.caller()
    context = RequestContext(trace := Trace(api.service), caller, trace.timings)
    request = SpeechRequest(input=TEXT, language="en", provider="supertonic", verify="report")
    listening = verdicts.SpeechVerification(context, await speech.prepare(context, request))
    async with aclosing(listening.blocks({})) as blocks:
        await anext(blocks)
    assert (await listening.verdict()).reason == "incomplete"
    assert not ears.jobs
    assert api.service.concurrency.body_bytes.total == 0
