"""Speech that is heard back, over the real app: verdicts, attempts, and what becomes of bad ears.

How texts are compared is tested in tests/text; what real ears hear, by `python -m benchmarks.quality spoken`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from threading import get_ident
from typing import Any

import httpx
import openai
import pytest

import deployments.ingress.ears
from autoscaling.engine import CallContext, Timings
from contract.errors import BUSY, ENGINE_FAILED, UPSTREAM_ERROR, ApiError
from contract.limits import BODIES_OF_KEY_BYTES, REQUESTS_PER_STREAM
from contract.speech import verdict as contract_verdict
from contract.telemetry import VERDICTS
from contract.transcription.engine import Segment, TranscriptionJob, TranscriptUpdate
from deployments.ingress.flows.verdicts import UNDER_WAY
from tests.api.conftest import Api, LocalEngine, client_of, events, refused
from tests.api.designs import designer, made
from tests.waiting import until
from text.spoken import Comparison, compare

TEXT = "Good morning, dear listeners."
EARS = "transcription-voxtral-mini-transcribe"


class ScriptedEars(LocalEngine):
    """Ears that hear what the script says, one text or error for each sound; the last one for ever.

    With the text as a hint they hear the same again, or `hinted`.
    """

    def __init__(self, *script: str | ApiError) -> None:
        self.name, self.callers, self.given, self.warmed = EARS, [], 0, 0
        self.script, self.jobs, self.go = list(script), list[TranscriptionJob](), asyncio.Event()
        self.go.set()
        self.hints, self.hinted = list[str](), ""

    async def ready(self, within_s: float, *, timings: Timings) -> None:
        if isinstance(error := self.script[0], ApiError) and error.fault is ENGINE_FAILED:
            raise error

    async def stream(self, method: Any, job: Any, *, context: CallContext) -> AsyncGenerator[Any, None]:
        self.callers.append(context.owner)
        await self.go.wait()
        if job.prompt is None:
            self.jobs.append(job)
            self.text = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        else:
            self.hints.append(job.prompt)
        if isinstance(self.text, ApiError):
            raise self.text
        text = self.hinted if job.prompt and self.hinted else self.text
        yield TranscriptUpdate(1.0)
        yield TranscriptUpdate(1.0, 1.0, job.language, tuple(Segment(part, 0, 1) for part in text.split("|") if part))


@pytest.fixture(autouse=True)
def good_ears(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are measured to be good in English, with the voices of these tests."""
    good = {"sentences": 100, "found": 1.0, "false_alarms": 0.0, "weak_voices": ["F5"]}
    monkeypatch.setattr(contract_verdict, "measured", lambda: {"obedient": {"obedient": {"en": good}}})


def hears(api: Api, *script: str | ApiError) -> ScriptedEars:
    ears = ScriptedEars(*script)
    api.replace_engines(ears, *(model.deployment for model in api.service.catalog.transcription.values()))
    return ears


async def speak(api: Api, verify: str | None = "report", text: str = TEXT, **fields: Any) -> httpx.Response:
    body = {"input": text, "language": "en", "provider": "supertonic", **fields}
    return await api.send("POST", "/v1/audio/speech", json=body | ({"verify": verify} if verify else {}))


async def fetch(api: Api, reply: httpx.Response, key: str | None = None) -> httpx.Response:
    return await api.send("GET", f"/v1/audio/speech/{reply.headers['x-request-id']}/verdict", key)


async def verdict(api: Api, reply: httpx.Response) -> dict[str, Any]:
    """The verdict, once it is there."""
    assert reply.status_code == 200, reply.text
    while UNDER_WAY:
        await asyncio.wait(set(UNDER_WAY))
    found = await fetch(api, reply)
    assert found.status_code == 200, found.text
    body: dict[str, Any] = found.json()
    return body


# --- report ----------------------------------------------------------------------------------------------------------


async def test_without_verify_nobody_listens(api: Api) -> None:
    ears = hears(api, TEXT)
    for verify in (None, "off"):
        reply = await speak(api, verify)
        refused(await fetch(api, reply), 404, "not_found", "request_id")
    assert not ears.jobs


async def test_a_report_says_what_was_heard_of_the_same_sound(api: Api) -> None:
    ears, plain = hears(api, "good morning|dear listeners"), await speak(api, None)
    reply = await speak(api)
    assert reply.content == plain.content
    assert await verdict(api, reply) == {
        "object": "speech.verdict",
        "verdict": "faithful",
        "reason": None,
        "heard": "good morning dear listeners",
        "word_error_rate": 0.0,
        "first_difference": None,
        "longest_difference": 0,
        "attempts": 1,
    }
    assert [(job.audio, job.language) for job in ears.jobs] == [(reply.content, "en")]
    assert ears.callers == [ears.jobs[0].owner] == ["org-1"]


async def test_a_report_names_what_is_missing(api: Api) -> None:
    hears(api, "Good morning, listeners.")
    body = await verdict(api, await speak(api))
    assert (body["verdict"], body["word_error_rate"], body["longest_difference"]) == ("differs", 0.25, 1)
    assert body["first_difference"] == {"expected": "dear", "heard": ""}


async def test_ears_hear_again_with_a_hint_before_they_blame(api: Api) -> None:
    ears = hears(api, "Good breakfast, dear listeners.")
    ears.hinted = TEXT
    body = await verdict(api, await speak(api))
    assert (body["verdict"], body["heard"], ears.hints) == ("faithful", TEXT, [TEXT])
    ears.script = [TEXT]
    assert (await verdict(api, await speak(api)))["verdict"] == "faithful"
    assert len(ears.hints) == 1


async def test_silence_differs(api: Api) -> None:
    hears(api, "")
    body = await verdict(api, await speak(api))
    assert (body["verdict"], body["heard"], body["word_error_rate"]) == ("differs", "", 1.0)


async def test_only_what_was_spoken_is_billed(api: Api) -> None:
    hears(api, TEXT)
    await verdict(api, await speak(api))
    assert [(line.unit, line.quantity) for line in await api.usage()] == [("characters", len(TEXT))]


async def test_until_our_ears_are_done_there_is_202(api: Api) -> None:
    ears = hears(api, TEXT)
    ears.go.clear()
    reply = await speak(api)
    early = await fetch(api, reply)
    assert (early.status_code, early.json(), early.headers["retry-after"]) == (202, {}, "2")
    ears.go.set()
    assert (await verdict(api, reply))["verdict"] == "faithful"


async def test_a_verdict_of_another_organisation_is_as_one_that_never_was(api: Api) -> None:
    hears(api, TEXT)
    reply = await speak(api)
    await verdict(api, reply)
    stranger = await api.stranger()
    id = reply.headers["x-request-id"]
    others = refused(await fetch(api, reply, stranger), 404, "not_found", "request_id")
    missing = refused(await api.send("GET", "/v1/audio/speech/req_0/verdict", stranger), 404, "not_found")
    assert others["message"].replace(id, "req_0") == missing["message"]


async def test_events_end_with_the_verdict(api: Api) -> None:
    hears(api, TEXT)
    reply = await speak(api, stream_format="sse")
    *_, done, last = map(json.loads, events(reply))
    assert (done["type"], last.pop("type")) == ("speech.audio.done", "speech.audio.verdict")
    assert last == await verdict(api, reply)


async def test_verdicts_are_counted(api: Api) -> None:
    hears(api, TEXT, "something else entirely was heard")
    for _ in range(2):
        await verdict(api, await speak(api))
    totals = api.service.metrics.totals
    assert [totals[VERDICTS, ("supertonic-3", name)] for name in ("faithful", "differs", "not_verifiable")] == [1, 1, 0]


# --- retry -----------------------------------------------------------------------------------------------------------


async def test_a_retry_ends_with_the_first_faithful_attempt(api: Api) -> None:
    hears(api, "Good morning, listeners.", TEXT)
    reply = await speak(api, "retry")
    assert (reply.headers["x-voice-verdict"], reply.headers["x-voice-attempts"]) == ("faithful", "2")
    body = await verdict(api, reply)
    assert (body["verdict"], body["attempts"]) == ("faithful", 2)
    assert [(line.unit, line.quantity) for line in await api.usage()] == [("characters", len(TEXT))]


async def test_of_three_wrong_attempts_the_best_is_sent(api: Api) -> None:
    hears(api, "good evening", "good morning, listeners", "evening")
    reply = await speak(api, "retry")
    assert (reply.headers["x-voice-verdict"], reply.headers["x-voice-attempts"]) == ("differs", "3")
    assert (await verdict(api, reply))["heard"] == "good morning, listeners"


async def test_the_attempt_that_says_its_text_is_sent_though_more_of_its_names_are_misspelled(api: Api) -> None:
    text = "Ferreira, Lindqvist and Brennan have carried 12 chairs into the large old hall behind the library today."
    number = text.replace("12", "13")
    names = text.replace("Ferreira, Lindqvist and Brennan", "Fereira, Linquist and Brenan")
    hears(api, number, names)
    reply = await speak(api, "retry", text)
    assert (reply.headers["x-voice-verdict"], reply.headers["x-voice-attempts"]) == ("faithful", "2")
    assert (await verdict(api, reply))["heard"] == names


async def test_of_three_attempts_two_are_in_memory(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    ears, bytes_of = hears(api, "good", "good morning", "good morning, listeners"), api.service.concurrency.body_bytes
    totals = list[int]()

    def noted(*arguments: Any) -> Comparison:
        totals.append(bytes_of.total)
        return compare(*arguments)

    monkeypatch.setattr(deployments.ingress.ears, "compare", noted)
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


async def test_who_says_the_same_again_is_not_asked_a_third_time(api: Api) -> None:
    ears = hears(api, "good morning, listeners")
    assert (await speak(api, "retry")).headers["x-voice-attempts"] == "2"
    assert len(ears.jobs) == 2


async def test_an_attempt_that_fails_leaves_those_before(api: Api) -> None:
    hears(api, "good morning, listeners")
    speaker, calls = api.engine("speech-supertonic-3"), 0
    whole = speaker.call

    async def fails_later(method: Any, job: Any, *, context: CallContext) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise UPSTREAM_ERROR()
        return await whole(method, job, context=context)

    speaker.call = fails_later  # type: ignore[method-assign]
    reply = await speak(api, "retry")
    assert (reply.status_code, reply.headers["x-voice-attempts"], calls) == (200, "1", 2)


async def test_a_first_attempt_that_fails_is_an_error(api: Api) -> None:
    hears(api, TEXT)
    refused(await speak(api, "retry", "good fail"), 502, "upstream_error")
    assert await api.usage() == []


# --- no ears, bad ears -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verify", ["report", "retry"])
@pytest.mark.parametrize("fields", [{"language": "fr"}, {"voice": "F5"}])
async def test_what_ears_cannot_judge_is_spoken_all_the_same(api: Api, verify: str, fields: dict[str, str]) -> None:
    ears = hears(api, TEXT)
    reply = await speak(api, verify, **fields)
    assert reply.content.endswith(b"end")
    body = await verdict(api, reply)
    assert (body["verdict"], body["reason"], body["heard"]) == ("not_verifiable", "not_measured", None)
    assert not ears.jobs


async def test_without_a_transcriber_there_are_no_ears(api: Api) -> None:
    deaf = api.without(*api.service.catalog.transcription)
    assert (await verdict(deaf, await speak(deaf)))["reason"] == "no_ears"


@pytest.mark.parametrize(
    ("error", "reason"), [(BUSY("full"), "busy"), (ENGINE_FAILED(), "ears_failed"), (UPSTREAM_ERROR(), "ears_failed")]
)
@pytest.mark.parametrize("verify", ["report", "retry"])
async def test_ears_that_fail_are_no_error_of_the_speech(api: Api, verify: str, error: ApiError, reason: str) -> None:
    hears(api, error)
    reply = await speak(api, verify)
    assert reply.content.endswith(b"end")
    body = await verdict(api, reply)
    assert (body["verdict"], body["reason"]) == ("not_verifiable", reason)


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

    monkeypatch.setattr(deployments.ingress.ears, "compare", noted)
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
    listening = verdicts.Listening(context, await speech.prepare(context, request))
    async with aclosing(listening.blocks({})) as blocks:
        await anext(blocks)
    assert (await listening.verdict()).reason == "incomplete"
    assert not ears.jobs
    assert api.service.concurrency.body_bytes.total == 0


@pytest.mark.parametrize("verify", ["yes", True, "", "RETRY"])
async def test_another_verify_is_refused(api: Api, verify: Any) -> None:
    body = {"input": TEXT, "verify": verify}
    refused(await api.send("POST", "/v1/audio/speech", json=body), 400, "invalid_request_error", "verify", says="retry")


async def test_the_sdk_of_openai_gets_sound_and_verdict(api: Api) -> None:
    hears(api, TEXT)
    client = openai.AsyncOpenAI(
        api_key=api.everything, base_url="http://test/v1", http_client=client_of(api.service), max_retries=0
    )
    spoken = await client.audio.speech.with_raw_response.create(
        model="supertonic-3", voice="default-en", input=TEXT, extra_body={"verify": "retry"}
    )
    assert spoken.headers["x-voice-verdict"] == "faithful"
    path = f"/audio/speech/{spoken.headers['x-request-id']}/verdict"
    assert (await client.get(path, cast_to=dict[str, Any]))["heard"] == TEXT


# --- voices to order -------------------------------------------------------------------------------------------------


async def test_a_preview_that_does_not_say_its_sentence_is_an_attempt_that_failed(api: Api) -> None:
    sentence = api.service.catalog.sentences["en"]
    ears = hears(api, "something else entirely", sentence)
    draft = await made(api)
    assert (draft["status"], draft["duration_ms"], draft["measurements"]["attempts_used"]) == ("ready", 3000, 2)
    assert len({job.seed for job in designer(api).jobs}) == len(ears.jobs) == 2


async def test_a_voice_that_never_says_its_sentence_is_none(api: Api) -> None:
    hears(api, "something else entirely")
    draft = await made(api)
    assert (draft["status"], draft["cost_micro_eur"]) == ("failed", 0)
    assert len(designer(api).jobs) == 5


async def test_a_voice_is_made_without_ears_too(api: Api) -> None:
    hears(api, ENGINE_FAILED())
    assert (await made(api))["status"] == "ready"
