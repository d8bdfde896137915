"""POST /audio/transcriptions over the real app: what is refused, which limits end it, and who pays then."""

from contextlib import suppress
from typing import Any
from unittest.mock import ANY

import httpx
import pytest

from autoscaling.engine import Timings
from contract.access import Scope
from contract.limits import CONTEXT_TERMS, FORMAT_TEXT_S, RECORDING_BODY_BYTES, RECORDING_FORM_BYTES, RECORDING_S
from contract.transcription.request import TranscriptionRequest
from contract.transcription.transcript import Transcript
from deployments.ingress.context import Exchange, RequestContext
from deployments.ingress.flows import transcription
from deployments.ingress.flows.transcription import TranscriptionAnswer
from tests.api.conftest import Api, refused
from tests.api.sounds import wav
from tests.api.transcriptions import (
    DEFAULT,
    PATH,
    WHISPER,
    Fields,
    body_of,
    engine_of,
    events_of,
    transcribe,
    with_options,
    within,
)

INVALID = "invalid_request_error"
FORM = "multipart/form-data; boundary=x"
TWO = "timestamp_granularities[]"


def form(**data: Any) -> Fields:
    """A request with a file and these fields."""
    return {"files": {"file": ("memo.mp3", "good morning")}, "data": data}


def body(content: bytes, kind: str) -> Fields:
    return {"content": content, "headers": {"content-type": kind}}


def decoded_by(codec: str, text: bytes) -> Fields:
    """A form that names a codec of Python for its `language`."""
    field = b'--x\r\nContent-Disposition: form-data; name="language"\r\n\r\n' + text
    return body(field + b"\r\n--x--\r\n", f"{FORM}; charset={codec}")


REFUSED: list[tuple[Fields, int, str, str | None, str]] = [
    (form(upload_id="upl_1"), 400, INVALID, "upload_id", "both"),
    (form(language="german"), 400, INVALID, "language", "german"),
    (form(language="../de"), 400, INVALID, "language", "../de"),
    (form(language=["de", "en"]), 400, INVALID, "language", ""),
    (form(model=WHISPER, format_text="true"), 400, INVALID, "format_text", ""),
    (form(format_text="maybe"), 400, INVALID, "format_text", ""),
    (form(response_format="srt"), 400, INVALID, "response_format", "json, text, verbose_json"),
    (form(response_format="vtt"), 400, INVALID, "response_format", "json, text, verbose_json"),
    (form(response_format="xml"), 400, INVALID, "response_format", ""),
    (form(stream="true", response_format="srt", model=WHISPER), 400, INVALID, "response_format", ""),
    (form(stream="2"), 400, INVALID, "stream", ""),
    (form(context_bias=["x"] * (CONTEXT_TERMS + 1)), 400, INVALID, "context_bias", "101 terms"),
    (form(timestamp_granularities="sentence"), 400, INVALID, "timestamp_granularities", ""),
    (form(**{TWO: ["segment,word"]}), 400, INVALID, "timestamp_granularities", "exactly one"),
    (form(**{TWO: ["segment", "word"]}), 400, INVALID, "timestamp_granularities", "exactly one"),
    *(
        (decoded_by(codec, text), 400, INVALID, ANY, "neither")
        for codec, text in (
            ("undefined", b"de"),
            ("punycode", b"99"),
            ("utf-7", b"+2AA-"),
            ("unicode_escape", rb"\ud800"),
            ("punycode", "\U00010000".encode("punycode") + b"a" * 65_000),
        )
    ),
    *(
        (form(model=WHISPER, language=language), 400, "language_not_supported", "language", language)
        for language in ("xx", "german", "d", "de DE", "yue", "../de")
    ),
    ({"files": {"other": (None, "x")}}, 400, INVALID, "file", "neither"),
    ({"files": {"audio": ("a.mp3", b"x")}}, 400, INVALID, "file", "sent in the field `audio`"),
    ({"files": {"file": (None, b"x")}}, 400, INVALID, "file", "as text"),
    ({"files": [("file", ("a.mp3", b"x")), ("file", ("b.mp3", b"x"))]}, 400, INVALID, None, "Too many files"),
    ({"json": {}}, 400, INVALID, "file", "neither"),
    (body(b"x", "multipart/form-data"), 400, INVALID, ANY, ""),
    (body(b"no form at all", FORM), 400, INVALID, ANY, ""),
    (body(b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nab', FORM), 400, INVALID, ANY, ""),
    (body(b"--x\r\nContent-Disposition: form-data\r\n\r\nab\r\n--x--\r\n", FORM), 400, INVALID, ANY, ""),
    *(
        (
            {"files": {"file": ("memo.mp3", "unreadable")}, "data": {"stream": stream}},
            400,
            "audio_unreadable",
            "file",
            "",
        )
        for stream in ("false", "true")
    ),
    *(
        ({"json": {"upload_id": upload_id}}, 404, "not_found", "upload_id", "")
        for upload_id in ("upl_unknown", " ", "../../etc/passwd", "x" * 1000)
    ),
    *(
        (body(b"x", kind), 415, "unsupported_media_type", None, "")
        for kind in ("audio/mpeg", "application/x-www-form-urlencoded", "text/plain", "")
    ),
]


async def test_what_is_refused(api: Api) -> None:
    wrong = []
    for request, status, code, param, says in REFUSED:
        reply = await api.send("POST", PATH, **request)
        error = reply.json().get("error", {})
        is_right = (reply.status_code, error.get("code"), error.get("param")) == (status, code, param)
        supported = len(error.get("supported", ()))
        if not is_right or says not in error["message"] or supported != 99 * (code == "language_not_supported"):
            wrong.append((request, reply.text))
    assert (wrong, await api.usage()) == ([], [])


async def test_what_an_engine_cannot_do_is_refused_before_ticket_and_engine(api: Api) -> None:
    ticket = body_of(await api.send("POST", "/v1/audio/uploads", json={"mime": "audio/mpeg", "size": 5}))
    await api.client.put(ticket["upload_url"], content=b"hello", headers={"content-type": "audio/mpeg"})
    upload = {"upload_id": ticket["upload_id"]}
    poor = with_options(api, times=["segment"], takes_terms=False, lacks_languages=["yue"])
    words = {"timestamp_granularities": "word", "response_format": "verbose_json"}
    for fields, param, code in (
        ({"model": WHISPER, "language": "xx"}, "language", "language_not_supported"),
        ({"model": WHISPER, **words}, "timestamp_granularities", INVALID),
        ({"language": "german"}, "language", INVALID),
        ({"context_bias": "Ray"}, "context_bias", INVALID),
    ):
        engine = poor.engine(poor.service.catalog.transcription[fields.get("model", DEFAULT)].deployment)
        before = engine.warmed
        for stream in (False, True):
            refused(await poor.send("POST", PATH, json=upload | fields | {"stream": stream}), 400, code, param)
        assert (engine.warmed, engine.callers) == (before, [])
    await api.limit(0)
    for scopes, status, code in (([Scope.CHAT], 403, "missing_scope"), (list(Scope), 402, "org_spend_limit")):
        refused(await poor.send("POST", PATH, await api.key(*scopes), json=upload), status, code, None)
    await api.limit(100)
    terms = {"context_bias": ["two words"]}  # which are none
    assert body_of(await poor.send("POST", PATH, json=upload | terms)) == {"text": "hello"}


async def test_recordings_last_four_hours_at_most_and_twenty_minutes_to_be_formatted(api: Api) -> None:
    for most, fields, param, says in (
        (RECORDING_S, {}, "file", ""),
        (FORMAT_TEXT_S, {"format_text": "true"}, "format_text", "20 minutes"),
    ):
        for seconds in (most - 1, most):
            assert (await transcribe(api, f"lasts {seconds}", **fields)).status_code == 200
        reply = await transcribe(api, f"lasts {most + 1}", **fields)
        refused(reply, 400, "audio_too_long", param, says)


async def test_413_body_over_four_and_a_half_mebibytes(api: Api) -> None:
    line = b"hello\n"

    def recording(size: int) -> bytes:
        return line + b"\n" * (size - len(line))

    for size in (RECORDING_BODY_BYTES - 1, RECORDING_BODY_BYTES):
        body_of(await transcribe(api, recording(size)))
    reply = await transcribe(api, recording(RECORDING_BODY_BYTES + 1))
    refused(reply, 413, "request_too_large", "file", "POST /audio/uploads")
    refused(await transcribe(api, recording(2 * RECORDING_BODY_BYTES)), 413, "request_too_large", None)


async def test_413_fields_over_64_kibibytes(api: Api) -> None:
    terms = ["x" * 1000] * 64
    assert (await transcribe(api, context_bias=terms)).status_code == 200
    reply = await transcribe(api, context_bias=terms, other="x" * (RECORDING_FORM_BYTES - 64_000))
    refused(reply, 413, "request_too_large", None)
    for text in ("x" * RECORDING_FORM_BYTES, "ä" * (RECORDING_FORM_BYTES // 2)):
        refused(await transcribe(api, prompt=text), 413, "request_too_large", None)


async def test_415_a_compressed_form(api: Api) -> None:
    files, headers = {"file": ("memo.wav", wav())}, {"content-encoding": "gzip"}
    reply = await api.send("POST", "/v1/audio/transcriptions", files=files, headers=headers)
    refused(reply, 415, "unsupported_media_type", None)


LATE: list[tuple[dict[str, float], str, Fields, int, str, str]] = [
    ({}, "hello\nfail", {}, 502, "upstream_error", ""),
    ({"answer_s": 0.2}, "hello\nhold 5", {}, 504, "upstream_timeout", "ask for less"),
    ({"answer_s": 0.2}, "hold 60\ntwo", {"stream": "true"}, 504, "upstream_timeout", "ask for less"),
    ({"answer_s": 0.5, "computed_s": 0.1}, "hello\nhold 5", {"model": WHISPER}, 504, "upstream_timeout", "split it"),
    ({"answer_s": 0.3, "computed_s": 120}, "hello\nhold 5", {"model": WHISPER}, 503, "warming_up", "warming up"),
]


async def test_engines_that_fail_or_are_late_cost_nothing(api: Api) -> None:
    for times, recording, fields, status, code, says in LATE:
        reply = await transcribe(within(api, **times), recording, **fields)
        refused(reply, status, code, None, says)
        assert reply.headers.get("retry-after") == ("60" if status == 503 else None)
    assert await api.usage() == []
    models = api.service.catalog.transcription
    assert [(m.answer_s, m.computed_s) for m in models.values()] == [(270, 0), (240, 120)]


async def test_503_not_configured(api: Api) -> None:
    refused(await transcribe(api.with_models(transcription={})), 503, "not_configured", None)
    refused(await transcribe(api.without(DEFAULT, WHISPER), model=WHISPER), 503, "not_configured", None)


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
    assert [event.get("delta") for event in events_of(reply)] == ["one", " two", None]
    assert events_of(reply)[-1]["error"]["type"] in ("upstream_error", "server_error")
    (line,) = await api.usage()
    assert (line.model, line.quantity, line.unit) == (model, 2, "audio_seconds")


async def test_402_before_a_file_is_decoded_and_for_one_that_is_longer_than_the_money(api: Api) -> None:
    await api.limit(0)
    refused(await transcribe(api, "unreadable"), 402, "org_spend_limit", None)
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
    context = RequestContext(Exchange(api.service), caller, Timings())
    plan = transcription.prepare(context, TranscriptionRequest())
    file, answer = b"one\ntwo\nhold 60\nthree", TranscriptionAnswer(Transcript(plan))
    with suppress(GeneratorExit):
        async with transcription.transcribe(context, plan, file, answer) as texts:
            assert [await anext(texts), await anext(texts)] == ["one", " two"]
            raise GeneratorExit
    (line,) = await api.usage()
    assert (line.quantity, line.unit) == (2, "audio_seconds")
    assert engine_of(api).under_way == 0


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
