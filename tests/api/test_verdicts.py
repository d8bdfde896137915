"""Speech that is transcribed to be judged, over the real app: verdicts, attempts, recognizers that fail, and room.

How texts are compared: tests/text. What real recognizers make of speech: `python -m benchmarks.quality spoken`.
"""

import asyncio
import io
import json
import wave
from collections.abc import Callable
from contextlib import aclosing
from threading import get_ident
from typing import Any, cast

import httpx
import pytest

import deployments.ingress.verifier as verification
from audio.sandbox import NotAudio, QueueFull, SharesExhausted, Sound, TooLong
from autoscaling.engine import CallContext
from concurrency.background import BACKGROUND_TASKS
from contract.access import Scope
from contract.errors import BUSY, ENGINE_FAILED, UPSTREAM_ERROR
from contract.limits import BODIES_OF_KEY_BYTES, REQUESTS_PER_STREAM
from contract.speech import verdict as contract_verdict
from contract.speech.request import SpeechRequest
from contract.speech.verdict import VERDICT_PASSAGE_CHARS
from contract.telemetry import VERDICTS
from deployments.ingress.context import Exchange, RequestContext
from deployments.ingress.flows import speech, verdicts
from tests.api.conftest import Api, events, refused
from tests.api.designs import designer, made
from tests.api.transcriptions import recognizing
from tests.waiting import ManualClock, cancelled, until
from text.spoken import Comparison, compare

TEXT = "Good morning, dear listeners."
THREE = "The train leaves. Ferreira sings. Nobody claps."
WRONG = ("good evening", "good morning, listeners", "evening")


@pytest.fixture(autouse=True)
def _good_recognizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is measured to be good in English, with the voices of these tests."""
    good = {"sentences": 100, "found": 1.0, "false_alarms": 0.0, "weak_voices": ["F5"]}
    monkeypatch.setattr(contract_verdict, "measured", lambda: {"obedient": {"obedient": {"en": good}}})


async def speak(
    api: Api, verify: Any = "report", text: str = TEXT, key: str | None = None, **fields: Any
) -> httpx.Response:
    body = {"input": text, "language": "en", "provider": "supertonic", **fields}
    return await api.send("POST", "/v1/audio/speech", key, json=body | ({"verify": verify} if verify else {}))


def before_speech(api: Api, monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> None:
    """Does this before each call of the speech engine."""
    speaker = api.engine("speech-supertonic-3")
    whole = speaker.call

    async def call(method: Any, job: Any, *, context: CallContext) -> Any:
        do()
        return await whole(method, job, context=context)

    monkeypatch.setattr(speaker, "call", call)


async def fetch(api: Api, reply: httpx.Response, key: str | None = None) -> httpx.Response:
    return await api.send("GET", f"/v1/audio/speech/{reply.headers['x-request-id']}/verdict", key)


async def verdict(api: Api, reply: httpx.Response, key: str | None = None) -> dict[str, Any]:
    """The verdict, once it is there."""
    assert reply.status_code == 200, reply.text
    # Loops of other tests have left tasks.
    while tasks := {task for task in BACKGROUND_TASKS if task.get_loop() is asyncio.get_running_loop()}:
        await asyncio.wait(tasks)
    found = await fetch(api, reply, key)
    assert found.status_code == 200, found.text
    body: dict[str, Any] = found.json()
    return body


async def judged(api: Api, verify: str = "report", text: str = TEXT, **fields: Any) -> dict[str, Any]:
    """The verdict of a request."""
    return await verdict(api, await speak(api, verify, text, **fields))


async def test_a_cold_transcriber_is_waited_for_whatever_it_does_with_other_calls(api: Api) -> None:
    handle = recognizing(api, TEXT, when_cold="refuse").engine.handle
    handle.sleep()
    reply = await speak(api)
    handle.may_start.set()
    assert (await verdict(api, reply))["verdict"] == "faithful"


async def test_a_report_says_what_was_transcribed_of_the_same_sound_and_only_speech_is_billed(api: Api) -> None:
    recognizer, plain = recognizing(api, "good morning|dear listeners"), await speak(api, None)
    reply = await speak(api)
    assert reply.content == plain.content
    assert (body := await verdict(api, reply)) == {
        "object": "speech.verdict",
        "verdict": "faithful",
        "reason": None,
        "heard": "good morning dear listeners",
        "word_error_rate": 0.0,
        "first_difference": None,
        "longest_difference": 0,
        "attempts": 1,
    }
    assert [(job.audio, job.language) for job in recognizer.jobs] == [(reply.content, "en")]
    assert recognizer.engine.callers == [recognizer.jobs[0].owner] == ["org-1"]
    *_, done, last = map(json.loads, events(await speak(api, stream_format="sse")))
    assert (done["type"], last) == ("speech.audio.done", body | {"type": "speech.audio.verdict"})
    assert [(line.unit, line.quantity) for line in await api.usage()] == [("characters", len(TEXT))] * 3


async def test_a_report_names_what_is_missing_up_to_a_length(api: Api) -> None:
    recognizing(api, "Good morning, listeners.", "")
    body = await judged(api)
    assert (body["verdict"], body["word_error_rate"], body["longest_difference"]) == ("differs", 0.25, 1)
    assert body["first_difference"] == {"expected": "dear", "heard": ""}
    for length in (VERDICT_PASSAGE_CHARS - 1, VERDICT_PASSAGE_CHARS, VERDICT_PASSAGE_CHARS + 1):
        body = await judged(api, text="a" * length)
        assert (body["verdict"], body["heard"], body["word_error_rate"]) == ("differs", "", 1.0)
        assert len(body["first_difference"]["expected"]) == min(length, VERDICT_PASSAGE_CHARS)
    totals = api.service.metrics.totals
    assert [totals[VERDICTS, ("supertonic-3", name)] for name in ("faithful", "differs", "not_verifiable")] == [0, 4, 0]


@pytest.mark.parametrize("verify", ["report", "retry"])
async def test_speech_is_compared_with_the_text_without_marks_for_the_eye(api: Api, verify: str) -> None:
    text = "# Add **1/2** cup 🎉 to the [soup](http://a.b)."
    recognizer = recognizing(api, "Add one half cup to the soup.")
    body = await judged(api, verify, text)
    assert (body["verdict"], body["word_error_rate"], len(recognizer.jobs)) == ("faithful", 0.0, 1)
    assert [line.quantity for line in await api.usage()] == [len(text)]
    recognizer.script = ["早上好。|各位听众。"]
    body = await judged(api, verify, "早上好。各位听众。")
    assert (body["heard"], body["word_error_rate"]) == ("早上好。各位听众。", 0.0)


async def test_a_recognizer_is_asked_again_with_a_hint_before_it_blames(api: Api) -> None:
    recognizer = recognizing(api, "Good breakfast, dear listeners.")
    recognizer.hinted = TEXT
    body = await judged(api)
    assert (body["verdict"], body["heard"], [job.prompt for job in recognizer.hints]) == ("faithful", TEXT, [TEXT])
    # Where it gave nothing, or what is right, the hint would tell it nothing but the text.
    for text, judgement in (("Good morning, listeners.", "differs"), (TEXT, "faithful")):
        recognizer.script = [text]
        assert (await judged(api))["verdict"] == judgement
    assert len(recognizer.hints) == 1


@pytest.mark.parametrize("verify", ["report", "retry"])
async def test_verification_needs_the_scope_of_transcriptions(api: Api, verify: str) -> None:
    recognizer = recognizing(api, TEXT)
    key = await api.key(Scope.SPEECH)
    assert (await speak(api, "off", key=key)).status_code == 200
    refused(await speak(api, verify, key=key), 403, "missing_scope", None, says="`transcribe`")
    assert not recognizer.jobs
    both = await api.key(Scope.SPEECH, Scope.TRANSCRIBE)
    assert (await verdict(api, await speak(api, verify, key=both), both))["verdict"] == "faithful"


async def test_a_verdict_is_202_until_it_is_there_and_404_for_others(api: Api) -> None:
    recognizer = recognizing(api, TEXT)
    ann, eve, stranger = [await api.key(*Scope, user=name) for name in ("ann", "eve")] + [await api.stranger()]
    recognizer.adapter.go.clear()
    reply = await speak(api, key=ann)
    early = await fetch(api, reply, ann)
    assert (early.status_code, early.json(), early.headers["retry-after"]) == (202, {}, "2")
    recognizer.adapter.go.set()
    assert (await verdict(api, reply, ann))["verdict"] == "faithful"
    missing = refused(await api.send("GET", "/v1/audio/speech/req_0/verdict", stranger), 404, "not_found")
    for key in (eve, stranger):
        others = refused(await fetch(api, reply, key), 404, "not_found", "request_id")
        assert others["message"].replace(reply.headers["x-request-id"], "req_0") == missing["message"]


async def test_speech_that_is_refused_or_asks_for_none_leaves_no_verdict_that_will_come(api: Api) -> None:
    recognizer = recognizing(api, TEXT)
    for verify, text, status in ((None, TEXT, 200), ("off", TEXT, 200), ("report", "fail", 502)):
        reply = await speak(api, verify, text)
        assert reply.status_code == status
        refused(await fetch(api, reply), 404, "not_found", "request_id")
    refused(await speak(api, "retry", "good fail"), 502, "upstream_error")
    for other in ("yes", True, " ", "RETRY"):
        refused(await speak(api, other), 400, "invalid_request_error", "verify", says="retry")
    assert (len(await api.usage()), recognizer.jobs) == (2, [])


LONG = "Ferreira, Lindqvist and Brennan have carried 12 chairs into the large old hall behind the library today."
NAMES = LONG.replace("Ferreira, Lindqvist and Brennan", "Fereira, Linquist and Brenan")


@pytest.mark.parametrize(
    ("text", "script", "judgement", "attempts", "sent"),
    [
        (TEXT, ["Good morning, listeners.", TEXT], "faithful", 2, TEXT),
        (TEXT, WRONG, "differs", 3, WRONG[1]),
        (TEXT, WRONG[1:2], "differs", 2, WRONG[1]),
        (LONG, [LONG.replace("12", "13"), NAMES], "faithful", 2, NAMES),
    ],
    ids=["the first faithful one", "the best of three", "no third where two are the same", "though names are wrong"],
)
async def test_of_some_attempts_the_best_is_sent_and_one_is_billed(
    api: Api, text: str, script: list[str], judgement: str, attempts: int, sent: str
) -> None:
    recognizer = recognizing(api, *script)
    reply = await speak(api, "retry", text)
    assert (reply.headers["x-voice-verdict"], reply.headers["x-voice-attempts"]) == (judgement, str(attempts))
    body = await verdict(api, reply)
    assert (body["verdict"], body["attempts"], body["heard"]) == (judgement, attempts, sent)
    assert len(recognizer.jobs) == attempts
    assert [(line.unit, line.quantity) for line in await api.usage()] == [("characters", len(text))]


@pytest.mark.parametrize("left", [1, 2, 3])
async def test_attempts_beyond_the_first_count_against_the_rate_and_end_with_it(api: Api, left: int) -> None:
    recognizing(api, *WRONG)
    await api.change("acme", requests_per_minute=left)
    key = await api.key(*Scope)
    reply = await speak(api, "retry", key=key)
    assert (reply.headers["x-voice-attempts"], reply.headers["x-ratelimit-remaining"]) == (str(left), "0")
    assert (await speak(api, "off", key=key)).status_code == 429


@pytest.mark.parametrize(("spoken_s", "attempts"), [(59, "2"), (60, "1"), (61, "1")])
async def test_no_attempt_begins_after_a_minute(
    api: Api, monkeypatch: pytest.MonkeyPatch, spoken_s: int, attempts: str
) -> None:
    recognizing(api, *WRONG)
    clock = ManualClock()
    monkeypatch.setattr("deployments.ingress.flows.verdicts.time", clock)

    def takes_long() -> None:
        clock.now_s += spoken_s

    before_speech(api, monkeypatch, takes_long)
    assert (await speak(api, "retry")).headers["x-voice-attempts"] == attempts


async def test_an_attempt_that_fails_leaves_those_before(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    recognizing(api, WRONG[1])
    errors = [UPSTREAM_ERROR(), None]

    def fails_later() -> None:
        if error := errors.pop():
            raise error

    before_speech(api, monkeypatch, fails_later)
    reply = await speak(api, "retry")
    assert (reply.status_code, reply.headers["x-voice-attempts"], errors) == (200, "1", [])


async def test_a_best_attempt_that_cannot_be_sent_is_not_billed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    recognizing(api, TEXT)
    monkeypatch.setattr(speech.PreparedSpeech, "billed", {}.__getitem__)
    assert ((await speak(api, "retry")).status_code, await api.usage()) == (500, [])


@pytest.mark.parametrize("verify", ["report", "retry"])
async def test_what_cannot_be_judged_is_spoken_all_the_same(api: Api, verify: str) -> None:
    for script, fields, reason in (
        (TEXT, {"language": "fr"}, "not_measured"),
        (TEXT, {"voice": "F5"}, "not_measured"),
        (BUSY("full"), {}, "busy"),
        (ENGINE_FAILED(), {}, "ears_failed"),
        (UPSTREAM_ERROR(), {}, "ears_failed"),
    ):
        recognizer = recognizing(api, script)
        reply = await speak(api, verify, **fields)
        assert reply.content.endswith(b"end")
        body = await verdict(api, reply)
        assert (body["verdict"], body["reason"], body["heard"]) == ("not_verifiable", reason, None)
        assert not recognizer.jobs or not fields
    assert (await judged(api.without(*api.service.catalog.transcription), verify))["reason"] == "no_ears"


async def test_a_preview_that_does_not_say_its_sentence_is_an_attempt_that_failed(api: Api) -> None:
    recognizer = recognizing(api, "something else entirely", api.service.catalog.sentences["en"])
    draft = await made(api)
    assert (draft["status"], draft["duration_ms"], draft["measurements"]["attempts_used"]) == ("ready", 3000, 2)
    assert len({job.seed for job in designer(api).jobs}) == len(recognizer.jobs) == 2
    recognizing(api, "something else entirely")
    draft = await made(api)
    assert (draft["status"], draft["cost_micro_eur"], len(designer(api).jobs)) == ("failed", 0, 2 + 5)
    recognizing(api, ENGINE_FAILED())
    assert (await made(api))["status"] == "ready", "a voice is made without a recognizer too"


@pytest.mark.parametrize(("piece_s", "hint", "seconds"), [(10, THREE, None), (10.1, "Ferreira sings.", 10.1)])
async def test_of_a_sound_of_more_than_a_window_only_what_differs_is_transcribed_again(
    api: Api, monkeypatch: pytest.MonkeyPatch, piece_s: float, hint: str, seconds: float | None
) -> None:
    async def decoded(sound: bytes, rate: int, *_: Any) -> Sound:
        return Sound(bytes(2 * rate * 60), rate, 60.0)

    monkeypatch.setattr(verification, "decode", decoded)
    recognizer = recognizing(api, "The train leaves.|The dog barks.|Nobody claps.")
    recognizer.hinted, recognizer.piece_s = hint, piece_s
    body = await judged(api, text=THREE)
    assert (body["verdict"], body["heard"], [job.prompt for job in recognizer.hints]) == ("faithful", THREE, [hint])
    if seconds:
        with wave.open(io.BytesIO(cast(bytes, recognizer.hints[0].audio))) as part:
            assert part.getnframes() / part.getframerate() == pytest.approx(seconds, abs=0.001)


async def test_a_part_that_cannot_be_cut_out_is_not_judged(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [QueueFull("files wait"), SharesExhausted("recordings are held"), NotAudio("it is empty"), TooLong(1)]

    async def fails(*_: Any) -> Sound:
        raise errors.pop(0)

    monkeypatch.setattr(verification, "decode", fails)
    recognizing(api, "The train leaves.|The dog barks.|Nobody claps.").piece_s = 20
    reasons = [(await judged(api, text=THREE))["reason"] for _ in range(4)]
    assert reasons == ["busy", "busy", "ears_failed", "ears_failed"]


async def test_of_three_attempts_two_are_in_memory_and_comparing_takes_a_thread(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    recognizer = recognizing(api, "good", "good morning", "good morning, listeners")
    totals, threads, bytes_of = list[int](), set[int](), api.service.concurrency.body_bytes

    def noted(*arguments: Any) -> Comparison:
        totals.append(bytes_of.total)
        threads.add(get_ident())
        return compare(*arguments)

    monkeypatch.setattr(verification, "compare", noted)
    reply = await speak(api, "retry")
    one = len(recognizer.jobs[0].audio)
    asked = totals[0] - one
    assert reply.headers["x-voice-attempts"] == "3"
    assert {round((total - asked) / one) for total in totals} == {1, 2}
    assert bytes_of.total == 0
    assert get_ident() not in threads


async def test_a_client_that_leaves_leaves_nothing_behind_and_gets_no_verdict_of_half_a_sound(api: Api) -> None:
    recognizer, limits, caller = recognizing(api, TEXT), api.service.concurrency, await api.caller()
    context = RequestContext(exchange := Exchange(api.service), caller, exchange.timings)
    request = SpeechRequest(input=TEXT, language="en", provider="supertonic", verify="report")
    report = verdicts.SpeechVerification(context, await speech.prepare(context, request))
    async with aclosing(report.blocks({})) as blocks:
        await anext(blocks)
    assert ((await report.verdict()).reason, recognizer.jobs) == ("incomplete", [])
    recognizer.adapter.go.clear()
    asking = asyncio.create_task(speak(api, "retry"))
    await until(lambda: recognizer.engine.callers)
    await cancelled(asking)
    await until(lambda: not limits.calls.total)
    assert (limits.body_bytes.total, api.state.rates.open_streams, len(recognizer.engine.callers)) == (0, 0, 1)


async def test_sound_for_which_there_is_no_room_is_not_held(api: Api) -> None:
    recognizer, caller, held = recognizing(api, TEXT), await api.caller(), api.service.concurrency.body_bytes
    with api.service.concurrency.reply(caller, BODIES_OF_KEY_BYTES):
        # The request itself has room, the sound has none.
        held.take(caller, -5000)
        assert (await judged(api, text="word " * 700))["reason"] == "busy"
        held.take(caller, 5000)
    assert (recognizer.jobs, held.total) == ([], 0)


@pytest.mark.parametrize(("more", "reason"), [(-1, None), (0, None), (1, "busy")])
async def test_sound_that_is_judged_is_one_of_the_requests_that_a_key_may_have_running(
    api: Api, more: int, reason: str | None
) -> None:
    recognizer, caller, calls = recognizing(api, TEXT), await api.caller(), api.service.concurrency.calls
    recognizer.adapter.go.clear()
    # Beside these there is the speech, and its verification.
    running = caller.tariff.concurrent_streams * REQUESTS_PER_STREAM - 2 + more
    calls.take(caller, running)
    reply = await speak(api)
    calls.take(caller, -running)
    if not reason:
        await until(lambda: recognizer.engine.callers)
        assert calls.total == 1
    recognizer.adapter.go.set()
    assert (await verdict(api, reply))["reason"] == reason
    assert calls.total == 0
