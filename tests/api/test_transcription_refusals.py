"""POST /audio/transcriptions over the real app: what is refused, which limits end it, and who pays then."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from autoscaling.engine import Timings
from contract.access import Scope
from contract.limits import CONTEXT_TERMS, FORMAT_TEXT_S, RECORDING_BODY_BYTES, RECORDING_FORM_BYTES, RECORDING_S
from contract.transcription.request import TranscriptionRequest
from contract.transcription.transcript import Transcript
from deployments.ingress.context import RequestContext, Trace
from deployments.ingress.flows import transcription
from deployments.ingress.flows.transcription import TranscriptionAnswer
from tests.api.conftest import Api, refused
from tests.api.transcriptions import (
    DEFAULT,
    PATH,
    WHISPER,
    Fields,
    engine_of,
    heard,
    heard_in,
    transcribe,
    with_options,
    within,
)

TWO = "timestamp_granularities[]"

REFUSED: list[tuple[Fields, str | None, str]] = [
    ({"upload_id": "upl_1"}, "upload_id", "both"),
    ({"language": "german"}, "language", "german"),
    ({"language": "../de"}, "language", "../de"),
    ({"language": ["de", "en"]}, "language", ""),
    ({"model": WHISPER, "format_text": "true"}, "format_text", ""),
    ({"format_text": "maybe"}, "format_text", ""),
    ({"response_format": "srt"}, "response_format", "json, text, verbose_json"),
    ({"response_format": "vtt"}, "response_format", "json, text, verbose_json"),
    ({"response_format": "xml"}, "response_format", ""),
    ({"stream": "true", "response_format": "srt", "model": WHISPER}, "response_format", ""),
    ({"stream": "2"}, "stream", ""),
    ({"context_bias": ["x"] * (CONTEXT_TERMS + 1)}, "context_bias", "101 terms"),
    ({"timestamp_granularities": "sentence"}, "timestamp_granularities", ""),
    *(({TWO: both}, "timestamp_granularities", "exactly one") for both in (["segment,word"], ["segment", "word"])),
]


@pytest.mark.parametrize(("fields", "param", "says"), REFUSED, ids=lambda value: str(value)[:60])
async def test_400_wrong_values(api: Api, fields: Fields, param: str | None, says: str) -> None:
    refused(await transcribe(api, **fields), 400, "invalid_request_error", param, says)


FORMS: list[tuple[Any, str | None, str]] = [
    ({"other": (None, "x")}, "file", "neither"),
    ({"audio": ("a.mp3", b"x")}, "file", "sent in the field `audio`"),
    ({"file": (None, b"x")}, "file", "as text"),
    ([("file", ("a.mp3", b"x")), ("file", ("b.mp3", b"x"))], None, "Too many files"),
]


@pytest.mark.parametrize(("files", "param", "says"), FORMS, ids=lambda value: str(value)[:30])
async def test_400_file_in_a_wrong_place(api: Api, files: Any, param: str | None, says: str) -> None:
    refused(await api.send("POST", PATH, files=files), 400, "invalid_request_error", param, says)


async def test_400_neither_file_nor_upload_id(api: Api) -> None:
    refused(await api.send("POST", PATH, json={}), 400, "invalid_request_error", "file", "neither")


@pytest.mark.parametrize("language", ["xx", "german", "d", "de DE", "yue", "../de"])
async def test_400_unknown_language(api: Api, language: str) -> None:
    reply = await transcribe(api, model=WHISPER, language=language)
    refused(reply, 400, "language_not_supported", "language", language)
    supported = reply.json()["error"]["supported"]
    assert len(supported) == 99
    assert "yue" not in supported


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"model": WHISPER, "language": "xx"}, "language", "language_not_supported"),
        (
            {"model": WHISPER, "timestamp_granularities": "word", "response_format": "verbose_json"},
            "timestamp_granularities",
            "invalid_request_error",
        ),
        ({"language": "german"}, "language", "invalid_request_error"),
        ({"context_bias": "Ray"}, "context_bias", "invalid_request_error"),
    ],
)
async def test_what_an_engine_cannot_do_is_refused_before_ticket_and_engine(
    api: Api, fields: Fields, param: str, code: str
) -> None:
    ticket = heard(await api.send("POST", "/v1/audio/uploads", json={"mime": "audio/mpeg", "size": 5}))
    await api.client.put(ticket["upload_url"], content=b"hello", headers={"content-type": "audio/mpeg"})
    upload = {"upload_id": ticket["upload_id"]}
    poor = with_options(api, times=["segment"], takes_terms=False, lacks_languages=["yue"])
    engine: Any = poor.service.engine(poor.service.catalog.transcription[fields.get("model", DEFAULT)])
    before = engine.warmed
    for body in (fields, fields | {"stream": True}):
        refused(await poor.send("POST", PATH, json=upload | body), 400, code, param)
    assert (engine.warmed, engine.callers) == (before, [])
    assert heard(await api.send("POST", PATH, json=upload)) == {"text": "hello"}


async def test_recording_may_last_four_hours(api: Api) -> None:
    for seconds in (RECORDING_S - 1, RECORDING_S):
        assert (await transcribe(api, f"lasts {seconds}")).status_code == 200
    refused(await transcribe(api, f"lasts {RECORDING_S + 1}"), 400, "audio_too_long", "file")


async def test_format_text_takes_twenty_minutes(api: Api) -> None:
    for seconds in (FORMAT_TEXT_S - 1, FORMAT_TEXT_S):
        assert (await transcribe(api, f"lasts {seconds}", format_text="true")).status_code == 200
    reply = await transcribe(api, f"lasts {FORMAT_TEXT_S + 1}", format_text="true")
    refused(reply, 400, "audio_too_long", "format_text", "20 minutes")


@pytest.mark.parametrize(
    "headers_and_body",
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=x", b"no form at all"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nab',
        ),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\nab\r\n--x--\r\n"),
    ],
)
async def test_400_broken_form(api: Api, headers_and_body: tuple[str, bytes]) -> None:
    kind, body = headers_and_body
    reply = await api.send("POST", PATH, content=body, headers={"content-type": kind})
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "invalid_request_error"


@pytest.mark.parametrize("kind", ["audio/mpeg", "application/x-www-form-urlencoded", "text/plain", ""])
async def test_415_other_bodies(api: Api, kind: str) -> None:
    reply = await api.send("POST", PATH, content=b"x", headers={"content-type": kind})
    refused(reply, 415, "unsupported_media_type", None)


@pytest.mark.parametrize("upload_id", ["upl_unknown", " ", "../../etc/passwd", "x" * 1000])
async def test_404_unknown_upload(api: Api, upload_id: str) -> None:
    refused(await api.send("POST", PATH, json={"upload_id": upload_id}), 404, "not_found", "upload_id")


async def test_413_body_over_four_and_a_half_mebibytes(api: Api) -> None:
    line = b"hello\n"

    def recording(size: int) -> bytes:
        return line + b"\n" * (size - len(line))

    for size in (RECORDING_BODY_BYTES - 1, RECORDING_BODY_BYTES):
        heard(await transcribe(api, recording(size)))
    reply = await transcribe(api, recording(RECORDING_BODY_BYTES + 1))
    refused(reply, 413, "request_too_large", "file", "POST /audio/uploads")
    refused(await transcribe(api, recording(2 * RECORDING_BODY_BYTES)), 413, "request_too_large", None)


async def test_413_fields_over_64_kibibytes(api: Api) -> None:
    terms = ["x" * 1000] * 64
    assert (await transcribe(api, context_bias=terms)).status_code == 200
    reply = await transcribe(api, context_bias=terms, other="x" * (RECORDING_FORM_BYTES - 64_000))
    refused(reply, 413, "request_too_large", None)


@pytest.mark.parametrize("stream", ["false", "true"])
async def test_400_recording_that_cannot_be_decoded_also_where_a_stream_was_asked_for(api: Api, stream: str) -> None:
    refused(await transcribe(api, "unreadable", stream=stream), 400, "audio_unreadable", "file")


# --- engines that fail or are late ------------------------------------------------------------------------------------


async def test_502_engine_that_fails(api: Api) -> None:
    refused(await transcribe(api, "hello\nfail"), 502, "upstream_error", None)
    assert await api.usage() == []


async def test_503_not_configured(api: Api) -> None:
    bare = api.with_models(transcription={})
    refused(await transcribe(bare), 503, "not_configured", None)
    refused(await transcribe(api.without(DEFAULT, WHISPER), model=WHISPER), 503, "not_configured", None)


async def test_504_default_model_is_late(api: Api) -> None:
    hurried = within(api, answer_s=0.2)
    refused(await transcribe(hurried, "hello\nhold 5"), 504, "upstream_timeout", None)
    assert await api.usage() == []


async def test_504_whisper_was_computing_for_long_enough(api: Api) -> None:
    hurried = within(api, answer_s=0.5, computed_s=0.1)
    refused(await transcribe(hurried, "hello\nhold 5", model=WHISPER), 504, "upstream_timeout", None, "split it")


async def test_503_whisper_was_not_computing_for_long_enough(api: Api) -> None:
    hurried = within(api, answer_s=0.3, computed_s=120)
    reply = await transcribe(hurried, "hello\nhold 5", model=WHISPER)
    refused(reply, 503, "warming_up", None, "warming up")
    assert reply.headers["retry-after"] == "60"


async def test_the_stanzas_have_the_times_of_the_spec(api: Api) -> None:
    models = api.service.catalog.transcription
    assert [(m.answer_s, m.computed_s) for m in models.values()] == [(270, 0), (240, 120)]


# --- money ------------------------------------------------------------------------------------------------------------


async def test_duration_is_billed_in_whole_seconds(api: Api) -> None:
    await transcribe(api, "lasts 2.1\nhello")
    await transcribe(api, "lasts 9\nhello\nsilence 3", model=WHISPER)
    lines = [(line.line, line.quantity, line.unit, line.cost_micro_eur) for line in await api.usage()]
    assert lines == [
        (f"transcription:{DEFAULT}", 3, "audio_seconds", 3),
        (f"transcription:{WHISPER}", 1, "audio_seconds", 1),
    ]


@pytest.mark.parametrize(("model", "computed_s"), [(DEFAULT, 0), (WHISPER, 0.01), (WHISPER, 120)])
async def test_a_stream_that_a_time_limit_ends_is_billed_as_far_as_it_went(
    api: Api, model: str, computed_s: float
) -> None:
    hurried = within(api, answer_s=0.5, computed_s=computed_s)
    reply = await transcribe(hurried, "lasts 14400\none\ntwo\nhold 60\nthree", model=model, stream="true")
    assert [event.get("delta") for event in heard_in(reply)] == ["one", " two", None]
    assert heard_in(reply)[-1]["error"]["type"] in ("upstream_error", "server_error")
    (line,) = await api.usage()
    assert (line.model, line.quantity, line.unit) == (model, 2, "audio_seconds")


@pytest.mark.parametrize("stream", ["false", "true"])
async def test_nothing_is_billed_where_a_time_limit_left_nothing_to_the_client(api: Api, stream: str) -> None:
    heard_first = "one\n" if stream == "false" else ""
    hurried = within(api, answer_s=0.5)
    refused(await transcribe(hurried, f"{heard_first}hold 60\ntwo", stream=stream), 504, "upstream_timeout", None)
    assert await api.usage() == []


async def test_402_before_a_file_is_decoded(api: Api) -> None:
    await api.limit(0)
    refused(await transcribe(api, "unreadable"), 402, "org_spend_limit", None)


async def test_402_for_a_recording_that_is_longer_than_the_money(api: Api) -> None:
    await api.limit(10)
    assert (await transcribe(api, "lasts 10")).status_code == 200
    await api.limit(20)
    refused(await transcribe(api, "lasts 11"), 402, "org_spend_limit", None)
    assert (await transcribe(api, "lasts 10")).status_code == 200


@pytest.mark.parametrize(("limit", "user_limit", "seconds"), [(10, 1000, 10), (1000, 11, 11), (1000, None, 1000)])
async def test_no_more_is_decoded_than_the_money_has_room_for(
    api: Api, limit: int, user_limit: int | None, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await api.key(*Scope, user="ann")
    await api.limit(limit)
    if user_limit:
        await api.limit(user_limit, user="ann")
    engine, most = engine_of(api), list[float]()
    transcribe = engine.transcribe
    monkeypatch.setattr(engine, "transcribe", lambda job: most.append(job.max_seconds) or transcribe(job))
    reply = await api.send("POST", PATH, key, files={"file": ("memo.mp3", "one")})
    assert reply.status_code == 200
    assert most[0] in (seconds, seconds + 1)  # a second that was reserved in advance may count twice


async def test_who_leaves_pays_for_what_was_heard(api: Api) -> None:
    caller = await api.caller()
    context = RequestContext(Trace(api.service), caller, Timings())
    plan = transcription.prepare(context, TranscriptionRequest())
    texts = transcription.transcribe(context, plan, b"one\ntwo\nhold 60\nthree", TranscriptionAnswer(Transcript(plan)))
    assert [await anext(texts), await anext(texts)] == ["one", " two"]
    await texts.aclose()
    (line,) = await api.usage()
    assert (line.quantity, line.unit) == (2, "audio_seconds")
    assert engine_of(api).under_way == 0


# --- repetition -------------------------------------------------------------------------------------------------------


async def test_idempotency_key_works_on_forms(api: Api) -> None:
    async def once(recording: str, **fields: Any) -> httpx.Response:
        headers = {"idempotency-key": "memo-1"}
        return await api.send("POST", PATH, files={"file": ("m", recording)}, data=fields, headers=headers)

    first, again = await once("hello"), await once("hello")  # each with a boundary of its own
    assert first.request.headers["content-type"] != again.request.headers["content-type"]
    assert (again.json(), again.headers["idempotent-replayed"]) == (first.json(), "true")
    assert len(await api.usage()) == 1
    refused(await once("other"), 422, "idempotency_mismatch", "Idempotency-Key")
    refused(await once("hello", language="de"), 422, "idempotency_mismatch", "Idempotency-Key")
