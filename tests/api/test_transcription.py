"""POST /audio/transcriptions over the real app: each row of the spec's section 7 (Transcription), forms, fields, money.

Recordings are texts that the engine of `tests.engines` obeys. Real recordings: tests/models, tests/cluster.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import openai
import pytest
import srt
import webvtt

from autoscaling.engine import Timings
from contract.access import Scope
from contract.catalog import Catalog, TranscriptionModel
from contract.limits import (
    CONTEXT_TERMS,
    FORMAT_TEXT_S,
    RECORDING_BODY_BYTES,
    RECORDING_FORM_BYTES,
    RECORDING_S,
    TRANSCRIPTION_PROMPT_CHARS,
)
from contract.transcription.request import TranscriptionRequest
from contract.transcription.transcript import Transcript
from deployments.ingress.app import build_app
from deployments.ingress.context import RequestContext, Service
from deployments.ingress.flows import transcription
from deployments.ingress.flows.transcription import Answer
from tests.api.conftest import Api

pytestmark = pytest.mark.anyio

DEFAULT, WHISPER = "voxtral-mini-transcribe", "whisper-large-v3"
PATH = "/v1/audio/transcriptions"
GRANULARITIES = "timestamp_granularities"

Fields = dict[str, Any]


async def transcribe(api: Api, recording: str | bytes = "good morning", **fields: Any) -> httpx.Response:
    return await api.send("POST", PATH, files={"file": ("memo.mp3", recording)}, data=fields)


def heard(reply: httpx.Response) -> Fields:
    assert reply.status_code == 200, reply.text
    body: Fields = reply.json()
    return body


def events(reply: httpx.Response) -> list[Fields]:
    return [json.loads(line[6:]) for line in reply.text.split("\n\n") if line.startswith("data: ")]


async def told(api: Api, **fields: Any) -> Fields:
    """What the engine was asked."""
    job: Fields = json.loads(heard(await transcribe(api, "told", **fields))["text"])
    return job


def refused(reply: httpx.Response, status: int, code: str, param: str | None = None, says: str = "") -> None:
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (status, code, param), reply.text
    assert says in error["message"]


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_json_is_the_text_alone(api: Api) -> None:
    assert heard(await transcribe(api, "good morning\nhow are you")) == {"text": "good morning how are you"}


async def test_text_is_plain(api: Api) -> None:
    reply = await transcribe(api, response_format="text")
    assert (reply.text, reply.headers["content-type"]) == ("good morning", "text/plain; charset=utf-8")


async def test_default_model_gives_no_segments_unless_asked(api: Api) -> None:
    body = heard(await transcribe(api, "a b\nc", response_format="verbose_json"))
    assert body == {"text": "a b c", "language": None, "duration": 2.0}


async def test_default_model_gives_segments_without_speakers(api: Api) -> None:
    body = heard(await transcribe(api, "a b\nc", response_format="verbose_json", timestamp_granularities="segment"))
    assert body["segments"] == [
        {"text": "a b", "start": 0.0, "end": 1.0, "speakerId": None},
        {"text": "c", "start": 1.0, "end": 2.0, "speakerId": None},
    ]


@pytest.mark.parametrize("name", ["timestamp_granularities", "timestamp_granularities[]"])
async def test_default_model_gives_words_as_segments(api: Api, name: str) -> None:
    body = heard(await transcribe(api, "a b\nc", response_format="verbose_json", **{name: "word"}))
    assert [part["text"] for part in body["segments"]] == ["a", "b", "c"]
    assert "words" not in body


async def test_whisper_always_gives_segments_with_its_figures(api: Api) -> None:
    body = heard(await transcribe(api, "a b", model=WHISPER, response_format="verbose_json"))
    (segment,) = body["segments"]
    assert segment == {
        "id": 0, "seek": 0, "start": 0.0, "end": 1.0, "text": "a b", "tokens": [1, 2], "temperature": 0.0,
        "avg_logprob": -0.25, "compression_ratio": 1.0, "no_speech_prob": 0.01,
    }  # fmt: skip
    assert "words" not in body


async def test_whisper_hears_nothing_as_empty_segments(api: Api) -> None:
    body = heard(await transcribe(api, "lasts 5\nsilence 5", model=WHISPER, response_format="verbose_json"))
    assert body == {"text": "", "language": "en", "duration": 0.0, "segments": []}


@pytest.mark.parametrize("granularities", [["segment,word"], ["segment", "word"], ["word"]])
async def test_whisper_gives_words_beside_segments(api: Api, granularities: list[str]) -> None:
    asked = {"timestamp_granularities[]": granularities}
    body = heard(await transcribe(api, "a b", model=WHISPER, response_format="verbose_json", **asked))
    assert body["words"] == [{"word": "a", "start": 0.0, "end": 0.5}, {"word": "b", "start": 0.5, "end": 1.0}]
    assert len(body["segments"]) == 1


async def test_whisper_ends_with_the_last_segment(api: Api) -> None:
    recording = "lasts 9\nhello\nsilence 4"
    verbose = {"response_format": "verbose_json"}
    assert heard(await transcribe(api, recording, model=WHISPER, **verbose))["duration"] == 1.0
    assert heard(await transcribe(api, recording, **verbose))["duration"] == 9.0


async def test_whisper_reports_the_language_and_the_default_model_does_not(api: Api) -> None:
    verbose = {"response_format": "verbose_json"}
    assert heard(await transcribe(api, "speaks fr\noui", model=WHISPER, **verbose))["language"] == "fr"
    assert heard(await transcribe(api, "speaks fr\noui", **verbose))["language"] is None
    assert heard(await transcribe(api, "speaks fr\noui", language="fr", **verbose))["language"] == "fr"


async def test_chinese_has_no_spaces_between_segments(api: Api) -> None:
    assert heard(await transcribe(api, "早上好。\n再见。", language="zh"))["text"] == "早上好。再见。"


@pytest.mark.parametrize(
    "text", ["one\ntwo words", "a --> b", "<b>bold</b> & more", "1", "NOTE this", "-", "\N{RIGHT-TO-LEFT OVERRIDE}x"]
)
async def test_subtitles_are_read_back_by_another_library(api: Api, text: str) -> None:
    said = text.split("\n")
    cues = list(srt.parse((await transcribe(api, text, model=WHISPER, response_format="srt")).text))
    assert [cue.content for cue in cues] == [line.replace("-->", "->") for line in said]
    assert cues[0].end == timedelta(seconds=1)
    track = webvtt.from_string((await transcribe(api, text, model=WHISPER, response_format="vtt")).text)
    assert [(cue.start, cue.end) for cue in track] == [
        (f"00:00:0{i}.000", f"00:00:0{i + 1}.000") for i in range(len(said))
    ]


# --- fields -----------------------------------------------------------------------------------------------------------


SPELLINGS = [
    ("de", "de"), ("de-DE", "de"), ("DE", "de"), ("nb", "no"), ("nb-NO", "no"), ("jv", "jw"), ("fil", "tl"),
    ("iw", "he"), ("in", "id"), ("ji", "yi"), ("yi", "yi"), ("auto", None), ("", None), ("zh-Hant-TW", "zh"),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "language"), SPELLINGS)
@pytest.mark.parametrize("model", [DEFAULT, WHISPER])
async def test_languages_are_read_generously(api: Api, model: str, sent: str, language: str | None) -> None:
    assert (await told(api, model=model, language=sent))["language"] == language


@pytest.mark.parametrize(("sent", "language"), [*((sent, sent) for sent, known in SPELLINGS if known), ("zz", "zz")])
async def test_the_default_model_echoes_a_language_as_it_was_sent(api: Api, sent: str, language: str) -> None:
    body = heard(await transcribe(api, language=sent, response_format="verbose_json"))
    assert body["language"] == language


async def test_whisper_reports_the_language_by_its_own_code(api: Api) -> None:
    body = heard(await transcribe(api, model=WHISPER, language="nb-NO", response_format="verbose_json"))
    assert body["language"] == "no"


@pytest.mark.parametrize("model", [None, "whisper-1", "gpt-4o-transcribe", DEFAULT])
async def test_an_unknown_model_is_the_default_one(api: Api, model: str | None) -> None:
    reply = await transcribe(api, **({"model": model} if model else {}))
    assert reply.headers["x-service-model-served"] == "obedient"
    assert reply.headers.get("x-service-model-requested") == model
    (line,) = await api.usage()
    assert line.model == DEFAULT


async def test_prompt_is_for_whisper_only(api: Api) -> None:
    assert (await told(api, prompt="Parlance"))["prompt"] is None
    assert (await told(api, model=WHISPER, prompt="Parlance"))["prompt"] == "Parlance"


@pytest.mark.parametrize("name", ["context_bias", "context_bias[]"])
async def test_terms_with_spaces_are_discarded(api: Api, name: str) -> None:
    job = await told(api, **{name: ["Müller-Lüdenscheidt", "two words", "tab\there", "", "Ray"]})
    assert job["terms"] == ["Müller-Lüdenscheidt", "Ray"]


async def test_fields_that_openai_has_and_we_do_not_are_ignored(api: Api) -> None:
    reply = await transcribe(api, temperature="0.2", chunking_strategy="auto", **{"include[]": "logprobs"})
    assert heard(reply) == {"text": "good morning"}


async def test_fifty_keys_of_an_organisation_are_one_owner_at_the_engine(api: Api) -> None:
    await api.organisation("rival")
    keys = [await api.key(Scope.TRANSCRIBE) for _ in range(50)]

    async def owner(key: str) -> str:
        reply = await api.send("POST", PATH, key, files={"file": ("memo.mp3", "told")})
        return str(json.loads(heard(reply)["text"])["owner"])

    (ours,) = {await owner(key) for key in keys}
    assert "" != ours != await owner(await api.key(Scope.TRANSCRIBE, org="rival"))


async def test_a_prompt_that_is_too_long_keeps_its_end(api: Api) -> None:
    job = await told(api, model=WHISPER, prompt="x" + "Parlance" * (TRANSCRIPTION_PROMPT_CHARS // 8))
    assert job["prompt"] == "Parlance" * (TRANSCRIPTION_PROMPT_CHARS // 8)


# --- streams ----------------------------------------------------------------------------------------------------------


async def test_stream_gives_deltas_and_the_whole(api: Api) -> None:
    reply = await transcribe(api, "good morning\nhow are you", stream="true", response_format="verbose_json")
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert [event.get("delta") for event in events(reply)] == ["good morning", " how are you", None]
    assert events(reply)[-1] == {
        "type": "transcript.text.done",
        "text": "good morning how are you",
        "language": None,
        "duration": 2.0,
        "usage": {"type": "duration", "seconds": 2},
    }


async def test_error_before_the_first_word_is_an_ordinary_reply(api: Api) -> None:
    refused(await transcribe(api, "unreadable", stream="true"), 400, "audio_unreadable", "file")


async def test_error_after_it_is_an_event_and_nothing_is_billed(api: Api) -> None:
    reply = await transcribe(api, "good morning\nfail", stream="true")
    assert reply.status_code == 200
    assert "secret" not in reply.text
    assert json.loads(reply.text.split("data: ")[-1])["error"]["code"] == "upstream_error"
    assert await api.usage() == []


# --- OpenAI's client --------------------------------------------------------------------------------------------------


@pytest.fixture
async def client(api: Api) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key=api.everything, base_url="http://test/v1", http_client=api.client)


FILE = ("memo.wav", b"good morning")


async def test_a_form_may_leave_its_fields_empty(api: Api) -> None:
    empty = dict.fromkeys((*TranscriptionRequest.model_fields, "context_bias[]", "timestamp_granularities[]"), "")
    left_out, unfilled = await transcribe(api), await transcribe(api, **empty)
    assert (unfilled.status_code, unfilled.json()) == (200, left_out.json())


async def test_openai_client_reads_json(client: openai.AsyncOpenAI) -> None:
    assert (await client.audio.transcriptions.create(model="whisper-1", file=FILE)).text == "good morning"


@pytest.mark.parametrize("format", ["text", "srt", "vtt"])
async def test_openai_client_reads_text(client: openai.AsyncOpenAI, format: Any) -> None:
    text = await client.audio.transcriptions.create(model=WHISPER, file=FILE, response_format=format)
    assert "good morning" in str(text)


async def test_openai_client_reads_verbose_json(client: openai.AsyncOpenAI) -> None:
    verbose = await client.audio.transcriptions.create(
        model=WHISPER,
        file=FILE,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
        language="en",
    )
    assert verbose.words is not None
    assert verbose.segments is not None
    assert (verbose.duration, verbose.words[1].word, verbose.segments[0].end) == (1.0, "morning", 1.0)


async def test_openai_client_streams(client: openai.AsyncOpenAI) -> None:
    stream = await client.audio.transcriptions.create(model="whisper-1", file=FILE, stream=True)
    events = [event async for event in stream]
    assert [event.type for event in events] == ["transcript.text.delta", "transcript.text.done"]
    assert events[-1].text == "good morning"  # type: ignore[union-attr]


# --- section 7, Transcription -----------------------------------------------------------------------------------------


async def test_400_neither_file_nor_upload_id(api: Api) -> None:
    refused(await api.send("POST", PATH, json={}), 400, "invalid_request_error", "file", "neither")
    reply = await api.send("POST", PATH, files={"other": (None, "x")})
    refused(reply, 400, "invalid_request_error", "file", "neither")


async def test_400_both_file_and_upload_id(api: Api) -> None:
    refused(await transcribe(api, upload_id="upl_1"), 400, "invalid_request_error", "upload_id", "both")


@pytest.mark.parametrize("granularities", [["segment,word"], ["segment", "word"], ["word", "segment"]])
async def test_400_two_granularities_on_the_default_model(api: Api, granularities: list[str]) -> None:
    reply = await transcribe(api, **{"timestamp_granularities[]": granularities})
    refused(reply, 400, "invalid_request_error", "timestamp_granularities", "exactly one")


@pytest.mark.parametrize("language", ["xx", "german", "d", "de DE", "yue", "../de"])
async def test_400_unknown_language(api: Api, language: str) -> None:
    reply = await transcribe(api, model=WHISPER, language=language)
    refused(reply, 400, "language_not_supported", "language", language)
    supported = reply.json()["error"]["supported"]
    assert len(supported) == 99
    assert "yue" not in supported


@pytest.mark.parametrize("language", ["german", "d", "de DE", "../de"])
async def test_400_what_is_no_code_of_a_language(api: Api, language: str) -> None:
    refused(await transcribe(api, language=language), 400, "invalid_request_error", "language", language)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": WHISPER, "language": "xx"}, "language"),
        ({"model": WHISPER, "timestamp_granularities": "word", "response_format": "verbose_json"}, GRANULARITIES),
        ({"language": "german"}, "language"),
        ({"context_bias": "Ray"}, "context_bias"),
    ],
)
async def test_what_an_engine_cannot_do_is_refused_before_ticket_and_engine(
    api: Api, fields: Fields, param: str
) -> None:
    ticket = heard(await api.send("POST", "/v1/audio/uploads", json={"mime": "audio/mpeg", "size": 5}))
    await api.client.put(ticket["upload_url"], content=b"hello", headers={"content-type": "audio/mpeg"})
    upload = {"upload_id": ticket["upload_id"]}
    async with with_options(api, times=["segment"], takes_terms=False, lacks_languages=["yue"]) as poor:
        engine: Any = poor.service.engine(poor.service.catalog.transcription[fields.get("model", DEFAULT)])
        before = engine.warmed
        for body in (fields, fields | {"stream": True}):
            refused(await poor.send("POST", PATH, json=upload | body), 400, refusal_code(fields), param)
        assert (engine.warmed, engine.callers) == (before, [])
    assert heard(await api.send("POST", PATH, json=upload)) == {"text": "hello"}


async def test_400_format_text_with_whisper(api: Api) -> None:
    refused(await transcribe(api, model=WHISPER, format_text="true"), 400, "invalid_request_error", "format_text")


@pytest.mark.parametrize("format", ["srt", "vtt"])
async def test_400_subtitles_from_the_default_model(api: Api, format: str) -> None:
    reply = await transcribe(api, response_format=format)
    refused(reply, 400, "invalid_request_error", "response_format", "json, text, verbose_json")


async def test_context_bias_takes_a_hundred_entries(api: Api) -> None:
    reply = await transcribe(api, context_bias=["x"] * (CONTEXT_TERMS + 1))
    refused(reply, 400, "invalid_request_error", "context_bias", "101 terms")
    for count in (CONTEXT_TERMS - 1, CONTEXT_TERMS):
        assert (await transcribe(api, context_bias=["x"] * count)).status_code == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "xml"}, "response_format"),
        ({"timestamp_granularities": "sentence"}, "timestamp_granularities"),
        ({"format_text": "maybe"}, "format_text"),
        ({"stream": "2"}, "stream"),
        ({"stream": "true", "response_format": "srt", "model": WHISPER}, "response_format"),
        ({"language": ["de", "en"]}, "language"),
    ],
)
async def test_400_wrong_values(api: Api, fields: Fields, param: str) -> None:
    refused(await transcribe(api, **fields), 400, "invalid_request_error", param)


def refusal_code(fields: Fields) -> str:
    return "language_not_supported" if fields.get("language") == "xx" else "invalid_request_error"


async def test_400_recording_that_cannot_be_decoded(api: Api) -> None:
    refused(await transcribe(api, "unreadable"), 400, "audio_unreadable", "file")


async def test_recording_may_last_four_hours(api: Api) -> None:
    for seconds in (RECORDING_S - 1, RECORDING_S):
        assert (await transcribe(api, f"lasts {seconds}")).status_code == 200
    refused(await transcribe(api, f"lasts {RECORDING_S + 1}"), 400, "audio_too_long", "file")


async def test_format_text_takes_twenty_minutes(api: Api) -> None:
    for seconds in (FORMAT_TEXT_S - 1, FORMAT_TEXT_S):
        assert (await transcribe(api, f"lasts {seconds}", format_text="true")).status_code == 200
    reply = await transcribe(api, f"lasts {FORMAT_TEXT_S + 1}", format_text="true")
    refused(reply, 400, "audio_too_long", "format_text", "20 minutes")


async def test_400_file_in_a_wrong_place(api: Api) -> None:
    reply = await api.send("POST", PATH, files={"audio": ("a.mp3", b"x")})
    refused(reply, 400, "invalid_request_error", "file", "sent in the field `audio`")
    refused(await api.send("POST", PATH, files={"file": (None, b"x")}), 400, "invalid_request_error", "file", "as text")
    two = [("file", ("a.mp3", b"x")), ("file", ("b.mp3", b"x"))]
    refused(await api.send("POST", PATH, files=two), 400, "invalid_request_error", None, "Too many files")


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
    refused(reply, 415, "unsupported_media_type")


async def test_401_without_a_key(api: Api) -> None:
    reply = await api.client.post(PATH, files={"file": FILE})
    refused(reply, 401, "missing_api_key")


async def test_403_without_the_scope(api: Api) -> None:
    key = await api.key(Scope.SPEECH)
    refused(await api.send("POST", PATH, key, files={"file": FILE}), 403, "missing_scope")


@pytest.mark.parametrize("upload_id", ["upl_unknown", "", "../../etc/passwd", "x" * 1000])
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
    refused(await transcribe(api, recording(2 * RECORDING_BODY_BYTES)), 413, "request_too_large")


async def test_413_fields_over_64_kibibytes(api: Api) -> None:
    terms = ["x" * 1000] * 64
    assert (await transcribe(api, context_bias=terms)).status_code == 200
    reply = await transcribe(api, context_bias=terms, other="x" * (RECORDING_FORM_BYTES - 64_000))
    refused(reply, 413, "request_too_large")


async def test_502_engine_that_fails(api: Api) -> None:
    refused(await transcribe(api, "hello\nfail"), 502, "upstream_error")
    assert await api.usage() == []


async def test_503_not_configured(api: Api) -> None:
    async with with_catalog(api, transcription={}) as bare:
        refused(await transcribe(bare), 503, "not_configured")
    models = api.service.catalog.transcription
    switched_off = {id: model.model_copy(update={"serving": None}) for id, model in models.items()}
    async with with_catalog(api, transcription=switched_off) as bare:
        refused(await transcribe(bare, model=WHISPER), 503, "not_configured")


async def test_504_default_model_is_late(api: Api) -> None:
    async with within(api, answer_s=0.2) as hurried:
        refused(await transcribe(hurried, "hello\nhold 5"), 504, "upstream_timeout")
    assert await api.usage() == []


async def test_504_whisper_was_computing_for_long_enough(api: Api) -> None:
    async with within(api, answer_s=2, computed_s=0.1) as hurried:
        reply = await transcribe(hurried, "hello\nhold 5", model=WHISPER)
        refused(reply, 504, "upstream_timeout", says="split it")


async def test_503_whisper_was_not_computing_for_long_enough(api: Api) -> None:
    async with within(api, answer_s=0.3, computed_s=120) as hurried:
        reply = await transcribe(hurried, "hello\nhold 5", model=WHISPER)
        refused(reply, 503, "warming_up", says="warming up")
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
    async with within(api, answer_s=1, computed_s=computed_s) as hurried:
        reply = await transcribe(hurried, "lasts 14400\none\ntwo\nhold 60\nthree", model=model, stream="true")
    assert [event.get("delta") for event in events(reply)] == ["one", " two", None]
    assert events(reply)[-1]["error"]["type"] in ("upstream_error", "server_error")
    (line,) = await api.usage()
    assert (line.model, line.quantity, line.unit) == (model, 2, "audio_seconds")


@pytest.mark.parametrize("stream", ["false", "true"])
async def test_nothing_is_billed_where_a_time_limit_left_nothing_to_the_client(api: Api, stream: str) -> None:
    heard_first = "one\n" if stream == "false" else ""
    async with within(api, answer_s=0.5) as hurried:
        reply = await transcribe(hurried, f"{heard_first}hold 60\ntwo", stream=stream)
    refused(reply, 504, "upstream_timeout")
    assert await api.usage() == []


async def test_402_before_a_file_is_decoded(api: Api) -> None:
    await api.limit(0)
    refused(await transcribe(api, "unreadable"), 402, "org_spend_limit")


async def test_402_for_a_recording_that_is_longer_than_the_money(api: Api) -> None:
    await api.limit(10)
    assert (await transcribe(api, "lasts 10")).status_code == 200
    await api.limit(20)
    refused(await transcribe(api, "lasts 11"), 402, "org_spend_limit")
    assert (await transcribe(api, "lasts 10")).status_code == 200


async def test_who_leaves_pays_for_what_was_heard(api: Api) -> None:
    caller = await api.state.accounts.authenticate(f"Bearer {api.everything}")
    context = RequestContext(api.service, caller, "req_1", time.perf_counter(), Timings())
    plan = transcription.prepare(context, TranscriptionRequest())
    texts = transcription.transcribe(context, plan, b"one\ntwo\nhold 60\nthree", Answer(Transcript(plan)))
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


# --- helpers ----------------------------------------------------------------------------------------------------------


def engine_of(api: Api, model: str = DEFAULT) -> Any:
    return api.service.engines[api.service.catalog.transcription[model].deployment].adapter  # type: ignore[attr-defined]


class with_catalog:
    """The same service with another catalogue."""

    def __init__(self, api: Api, **changed: Any) -> None:
        catalog: Catalog = api.service.catalog.model_copy(update=changed)
        self.service: Service = replace(api.service, catalog=catalog)
        self.everything = api.everything

    async def __aenter__(self) -> Api:
        transport = httpx.ASGITransport(build_app(self.service), raise_app_exceptions=False)
        return Api(self.service, httpx.AsyncClient(transport=transport, base_url="http://test"), self.everything)

    async def __aexit__(self, *_: object) -> None:
        return None


def within(api: Api, **times: float) -> with_catalog:
    """The same service with less time to answer."""
    models = api.service.catalog.transcription
    return with_catalog(api, transcription={id: m.model_copy(update=times) for id, m in models.items()})


def with_options(api: Api, **options: Any) -> with_catalog:
    """The same service over engines of other abilities."""
    models = api.service.catalog.transcription

    def able(model: TranscriptionModel) -> TranscriptionModel:
        assert model.serving
        return model.model_copy(update={"serving": model.serving.model_copy(update={"options": options})})

    return with_catalog(api, transcription={id: able(model) for id, model in models.items()})
