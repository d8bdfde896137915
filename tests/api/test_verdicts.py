"""Speech that is heard back, over the real app: verdicts, attempts, and what becomes of bad ears.

How texts are compared is tested in tests/text; what real ears hear, by `python -m benchmarks.quality spoken`.
"""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from autoscaling.engine import CallContext
from contract.access import Scope
from contract.errors import BUSY, ENGINE_FAILED, UPSTREAM_ERROR, ApiError
from contract.speech.verdict import VERDICT_PASSAGE_CHARS
from contract.telemetry import VERDICTS
from tests.api.conftest import Api, client_of, events, refused
from tests.api.designs import designer, made
from tests.api.ears import TEXT, fetch, hears, speak, verdict

# --- report ----------------------------------------------------------------------------------------------------------

pytestmark = pytest.mark.usefixtures("good_ears")


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


@pytest.mark.parametrize("verify", ["report", "retry"])
async def test_speech_is_compared_with_the_text_without_marks_for_the_eye(api: Api, verify: str) -> None:
    text = "# Add **1/2** cup 🎉 to the [soup](http://a.b)."
    ears = hears(api, "Add one half cup to the soup.")
    body = await verdict(api, await speak(api, verify, text))
    assert (body["verdict"], body["word_error_rate"], len(ears.jobs)) == ("faithful", 0.0, 1)
    assert [line.quantity for line in await api.usage()] == [len(text)]


async def test_ears_hear_again_with_a_hint_before_they_blame(api: Api) -> None:
    ears = hears(api, "Good breakfast, dear listeners.")
    ears.hinted = TEXT
    body = await verdict(api, await speak(api))
    assert (body["verdict"], body["heard"], ears.hints) == ("faithful", TEXT, [TEXT])
    # Where they heard nothing, or what is right, the hint would tell them nothing but the text.
    for heard, judgement in (("Good morning, listeners.", "differs"), (TEXT, "faithful")):
        ears.script = [heard]
        assert (await verdict(api, await speak(api)))["verdict"] == judgement
    assert len(ears.hints) == 1


@pytest.mark.parametrize("length", [VERDICT_PASSAGE_CHARS - 1, VERDICT_PASSAGE_CHARS, VERDICT_PASSAGE_CHARS + 1])
async def test_a_passage_is_told_up_to_a_length(api: Api, length: int) -> None:
    hears(api, "")
    body = await verdict(api, await speak(api, text="a" * length))
    assert len(body["first_difference"]["expected"]) == min(length, VERDICT_PASSAGE_CHARS)


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


async def test_a_verdict_of_another_user_is_as_one_that_never_was(api: Api) -> None:
    hears(api, TEXT)
    ann, eve = [await api.key(*Scope, user=name) for name in ("ann", "eve")]
    reply = await speak(api, key=ann)
    await verdict(api, reply, ann)
    refused(await fetch(api, reply, eve), 404, "not_found", "request_id")


@pytest.mark.parametrize("verify", ["report", "retry"])
async def test_verification_needs_the_scope_of_transcriptions(api: Api, verify: str) -> None:
    ears = hears(api, TEXT)
    key = await api.key(Scope.SPEECH)
    assert (await speak(api, "off", key=key)).status_code == 200
    refused(await speak(api, verify, key=key), 403, "missing_scope", None, says="`transcribe`")
    assert not ears.jobs
    both = await api.key(Scope.SPEECH, Scope.TRANSCRIBE)
    assert (await verdict(api, await speak(api, verify, key=both), both))["verdict"] == "faithful"


async def test_speech_that_is_refused_leaves_no_verdict_that_will_come(api: Api) -> None:
    hears(api, TEXT)
    reply = await speak(api, text="fail")
    assert reply.status_code == 502
    refused(await fetch(api, reply), 404, "not_found", "request_id")


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


@pytest.mark.parametrize("left", [1, 2, 3])
async def test_attempts_beyond_the_first_count_against_the_rate_and_end_with_it(api: Api, left: int) -> None:
    hears(api, "good evening", "good morning, listeners", "evening")
    await api.change("acme", requests_per_minute=left)
    key = await api.key(*Scope)
    reply = await speak(api, "retry", key=key)
    assert (reply.headers["x-voice-attempts"], reply.headers["x-ratelimit-remaining"]) == (str(left), "0")
    assert (await speak(api, "off", key=key)).status_code == 429


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


@pytest.mark.parametrize("verify", ["yes", True, " ", "RETRY"])
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
