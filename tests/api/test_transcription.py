"""POST /audio/transcriptions over the real app: answers, fields, streams, and OpenAI's client."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import openai
import pytest
import srt
import webvtt
from openai.types.audio import TranscriptionStreamEvent

from contract.access import Scope
from contract.transcription.request import TranscriptionRequest
from tests.api.conftest import Api
from tests.api.transcriptions import (
    DEFAULT,
    FILE,
    PATH,
    WHISPER,
    heard,
    heard_in,
    told,
    transcribe,
)
from tests.sdk import demand


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


@pytest.mark.parametrize(
    ("sent", "language"), [("de-DE", "de"), ("nb", "no"), ("fil", "tl"), ("auto", None), ("", None)]
)
@pytest.mark.parametrize("model", [DEFAULT, WHISPER])
async def test_languages_are_read_generously(api: Api, model: str, sent: str, language: str | None) -> None:
    """All spellings: tests/contract."""
    assert (await told(api, model=model, language=sent))["language"] == language


@pytest.mark.parametrize(
    ("model", "sent", "language"), [(DEFAULT, "nb-NO", "nb-NO"), (DEFAULT, "zz", "zz"), (WHISPER, "nb-NO", "no")]
)
async def test_the_default_model_echoes_a_language_and_whisper_reports_its_own_code(
    api: Api, model: str, sent: str, language: str
) -> None:
    body = heard(await transcribe(api, model=model, language=sent, response_format="verbose_json"))
    assert body["language"] == language


@pytest.mark.parametrize("model", [None, "whisper-1", "gpt-4o-transcribe", DEFAULT])
async def test_an_unknown_model_is_the_default_one(api: Api, model: str | None) -> None:
    reply = await transcribe(api, **({"model": model} if model else {}))
    assert reply.headers["x-service-model-served"] == "obedient"
    assert reply.headers.get("x-service-model-requested") == model
    (line,) = await api.usage()
    assert line.model == DEFAULT


async def test_fields_that_openai_has_and_we_do_not_are_ignored(api: Api) -> None:
    reply = await transcribe(api, temperature="0.2", chunking_strategy="auto", **{"include[]": "logprobs"})
    assert heard(reply) == {"text": "good morning"}


async def test_prompt_is_for_whisper_only(api: Api) -> None:
    assert (await told(api, prompt="Parlance"))["prompt"] is None
    assert (await told(api, model=WHISPER, prompt="Parlance"))["prompt"] == "Parlance"


@pytest.mark.parametrize("name", ["context_bias", "context_bias[]"])
async def test_terms_with_spaces_are_discarded(api: Api, name: str) -> None:
    job = await told(api, **{name: ["Müller-Lüdenscheidt", "two words", "tab\there", "", "Ray"]})
    assert job["terms"] == ["Müller-Lüdenscheidt", "Ray"]


async def test_fifty_keys_of_an_organisation_are_one_owner_at_the_engine(api: Api) -> None:
    await api.organisation("rival")
    keys = [await api.key(Scope.TRANSCRIBE) for _ in range(50)]

    async def owner(key: str) -> str:
        reply = await api.send("POST", PATH, key, files={"file": ("memo.mp3", "told")})
        return str(json.loads(heard(reply)["text"])["owner"])

    (ours,) = {await owner(key) for key in keys}
    assert "" != ours != await owner(await api.key(Scope.TRANSCRIBE, org="rival"))


# --- streams ----------------------------------------------------------------------------------------------------------


async def test_stream_gives_deltas_and_the_whole(api: Api) -> None:
    reply = await transcribe(api, "good morning\nhow are you", stream="true", response_format="verbose_json")
    assert reply.headers["content-type"].startswith("text/event-stream")
    for event in heard_in(reply):
        # The type knows a `usage` of tokens alone; this one is of seconds, as in a whole transcription.
        demand(TranscriptionStreamEvent, {name: value for name, value in event.items() if name != "usage"})
    assert [event.get("delta") for event in heard_in(reply)] == ["good morning", " how are you", None]
    assert heard_in(reply)[-1] == {
        "type": "transcript.text.done",
        "text": "good morning how are you",
        "language": None,
        "duration": 2.0,
        "usage": {"type": "duration", "seconds": 2},
    }


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
