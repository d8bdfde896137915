"""POST /audio/transcriptions over the real app: answers, fields, streams, turns at the decoder, and OpenAI's client."""

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
import srt
import webvtt
from openai.types.audio import TranscriptionStreamEvent

from audio import sandbox
from autoscaling.engine import owner_name
from contract.access import Scope
from contract.transcription.engine import Segment, TranscriptionJob, TranscriptUpdate
from contract.transcription.request import TranscriptionRequest
from models.transcription.adapter import Recording, TranscriptionAdapter
from tests.api.conftest import Api
from tests.api.live import scripted
from tests.api.sounds import wav
from tests.api.transcriptions import DEFAULT, PATH, WHISPER, Fields, asked, body_of, events_of, transcribe
from tests.sdk import demand
from tests.waiting import until

SEGMENTS, WORDS = ({"timestamp_granularities": kind} for kind in ("segment", "word"))
FIGURES: Fields = {
    "id": 0, "seek": 0, "start": 0.0, "end": 1.0, "text": "a b", "tokens": [1, 2], "temperature": 0.0,
    "avg_logprob": -0.25, "compression_ratio": 1.0, "no_speech_prob": 0.01,
}  # fmt: skip
TIMED = [{"word": "a", "start": 0.0, "end": 0.5}, {"word": "b", "start": 0.5, "end": 1.0}]


def passage(text: str, start: float, end: float) -> Fields:
    return {"text": text, "start": start, "end": end, "speakerId": None}


BY_WHISPER = {"model": WHISPER, "response_format": "verbose_json"}
IN_WORDS = {"segments": [passage("a", 0.0, 0.5), passage("b", 0.5, 1.0), passage("c", 1.0, 2.0)]}
ANSWERS: list[tuple[str, str, Fields, Fields]] = [
    ("whisper always gives segments with its figures", "a b", BY_WHISPER, {"segments": [FIGURES], "words": None}),
    *(
        ("whisper gives words beside segments", "a b", BY_WHISPER | {"timestamp_granularities[]": kinds}, words)
        for kinds in (["segment,word"], ["segment", "word"], ["word"])
        for words in [{"segments": [FIGURES], "words": TIMED}]
    ),
    ("whisper ends with the last segment", "lasts 9\nhello\nsilence 4", BY_WHISPER, {"duration": 1.0}),
    ("whisper gives silence as empty segments", "lasts 5\nsilence 5", BY_WHISPER,
     {"text": "", "language": "en", "duration": 0.0, "segments": []}),
    ("whisper reports the language", "speaks fr\noui", BY_WHISPER, {"language": "fr"}),
    ("whisper reports its own code", "a", BY_WHISPER | {"language": "nb-NO"}, {"language": "no"}),
    ("the default model gives no segments unless asked", "a b\nc", {},
     {"text": "a b c", "language": None, "duration": 2.0, "segments": None}),
    ("the default model gives segments without speakers", "a b\nc", SEGMENTS,
     {"segments": [passage("a b", 0.0, 1.0), passage("c", 1.0, 2.0)]}),
    ("the default model gives words as segments", "a b\nc", WORDS, IN_WORDS | {"words": None}),
    ("the field may be spelled as a list", "a b\nc", {"timestamp_granularities[]": "word"}, IN_WORDS),
    ("the default model ends with the recording", "lasts 9\nhello\nsilence 4", {}, {"duration": 9.0}),
    ("the default model reports no language", "speaks fr\noui", {}, {"language": None}),
    *(("it echoes one that was sent", "oui", {"language": sent}, {"language": sent}) for sent in ("fr", "nb-NO", "zz")),
    ("chinese has no spaces between segments", "早上好。\n再见。", {"language": "zh"}, {"text": "早上好。再见。"}),
]  # fmt: skip
"""Promises, and what of a verbose answer keeps them: a recording, fields, members of the body (None: absent)."""


async def test_each_model_says_what_it_can(api: Api) -> None:
    wrong = []
    for promise, recording, fields, members in ANSWERS:
        body = body_of(await transcribe(api, recording, **{"response_format": "verbose_json"} | fields))
        if {name: body.get(name) for name in members} != members:
            wrong.append((promise, body))
    assert wrong == []


async def test_json_is_the_text_alone_and_text_is_plain(api: Api) -> None:
    assert body_of(await transcribe(api, "good morning\nhow are you")) == {"text": "good morning how are you"}
    reply = await transcribe(api, response_format="text")
    assert (reply.text, reply.headers["content-type"]) == ("good morning", "text/plain; charset=utf-8")


async def test_subtitles_are_read_back_by_another_library(api: Api) -> None:
    titles = "one\ntwo words", "a --> b", "<b>bold</b> & more", "1", "NOTE this", "-", "\N{RIGHT-TO-LEFT OVERRIDE}x"
    for text in titles:
        said = text.split("\n")
        cues = list(srt.parse((await transcribe(api, text, model=WHISPER, response_format="srt")).text))
        assert [cue.content for cue in cues] == [line.replace("-->", "->") for line in said]
        assert cues[0].end == timedelta(seconds=1)
        track = webvtt.from_string((await transcribe(api, text, model=WHISPER, response_format="vtt")).text)
        seconds = [(f"00:00:0{i}.000", f"00:00:0{i + 1}.000") for i in range(len(said))]
        assert [(cue.start, cue.end) for cue in track] == seconds


async def test_fields_reach_the_engine_that_has_a_use_for_them(api: Api) -> None:
    """All spellings of languages: tests/contract."""
    for sent, language in (("de-DE", "de"), ("nb", "no"), ("fil", "tl"), ("auto", None), ("", None)):
        for model in (DEFAULT, WHISPER):
            assert (await asked(api, model=model, language=sent))["language"] == language
    assert (await asked(api, prompt="Parlance"))["prompt"] is None
    assert (await asked(api, model=WHISPER, prompt="Parlance"))["prompt"] == "Parlance"
    for name in ("context_bias", "context_bias[]"):
        job = await asked(api, **{name: ["Müller-Lüdenscheidt", "two words", "tab\there", "", "Ray"]})
        assert job["terms"] == ["Müller-Lüdenscheidt", "Ray"]


async def test_an_unknown_model_is_the_default_one(api: Api) -> None:
    for model in (None, "whisper-1", "gpt-4o-transcribe", DEFAULT):
        reply = await transcribe(api, **({"model": model} if model else {}))
        assert reply.headers["x-service-model-served"] == "obedient"
        assert reply.headers.get("x-service-model-requested") == model
    assert [line.model for line in await api.usage()] == [DEFAULT] * 4


async def test_fields_that_openai_has_and_we_do_not_are_ignored_and_empty_ones_are_absent(api: Api) -> None:
    plain = body_of(await transcribe(api))
    foreign = await transcribe(api, temperature="0.2", chunking_strategy="auto", **{"include[]": "logprobs"})
    empty = dict.fromkeys((*TranscriptionRequest.model_fields, "context_bias[]", "timestamp_granularities[]"), "")
    assert body_of(foreign) == body_of(await transcribe(api, **empty)) == plain == {"text": "good morning"}


async def test_stream_gives_deltas_and_the_whole(api: Api) -> None:
    reply = await transcribe(api, "good morning\nhow are you", stream="true", response_format="verbose_json")
    assert reply.headers["content-type"].startswith("text/event-stream")
    for event in events_of(reply):
        # The type knows a `usage` of tokens alone; this one is of seconds, as in a whole transcription.
        demand(TranscriptionStreamEvent, {name: value for name, value in event.items() if name != "usage"})
    assert [event.get("delta") for event in events_of(reply)] == ["good morning", " how are you", None]
    assert events_of(reply)[-1] == {
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


KEYS = 50


class Idle:
    """An engine that has done nothing yet."""

    active_s = 0.0


class Attentive(TranscriptionAdapter, Idle):
    """Decodes as every transcriber does, and gives a word."""

    async def listen(self, job: TranscriptionJob, recording: Recording) -> AsyncGenerator[TranscriptUpdate, None]:
        seconds = recording.sound.seconds
        yield TranscriptUpdate(seconds, seconds, "en", (Segment("hello", 0.0, seconds),))


async def of_a_clip(api: Api, key: str) -> httpx.Response:
    """Sends a clip, which is decoded in the ingress."""
    clip = base64.b64encode(wav(sample=b"\1\0")).decode()
    body = {"input": "hello", "reference_audio_b64": clip, "language": "en"}
    return await api.send("POST", "/v1/audio/speech", key, json=body)


async def of_a_recording(api: Api, key: str) -> httpx.Response:
    """Sends a recording, which is decoded beside an engine."""
    return await api.send("POST", PATH, key, files={"file": ("memo.wav", wav())})


@pytest.mark.parametrize("send", [of_a_clip, of_a_recording])
async def test_fifty_keys_of_an_organisation_hold_up_no_other(api: Api, send: Callable[[Api, str], Any]) -> None:
    scripted(api)
    model = api.service.catalog.transcription[DEFAULT]
    api.engine(model.deployment).adapter = adapter = Attentive(model, None)
    theirs = await api.stranger()
    keys = [await api.key(*Scope) for _ in range(KEYS)]
    slots = sandbox._slots
    async with slots.of(owner_name(1)):  # as a long file of theirs does
        tasks = [asyncio.create_task(send(api, key)) for key in keys]
        await until(lambda: slots.waiting + sum(task.done() for task in tasks) == KEYS)
        reply = await send(api, theirs)
        assert reply.status_code == 200, reply.text
        assert slots.waiting == sandbox.OWNER_WAITING, "none of them came before the one of another"
        assert bool(adapter.active_s) == (send is of_a_recording), "it is at work while it decodes"
    replies = await asyncio.gather(*tasks)
    assert not adapter.active_s
    assert Counter(r.status_code for r in replies) == {200: sandbox.OWNER_WAITING, 429: KEYS - sandbox.OWNER_WAITING}
    assert {r.json()["error"]["code"] for r in replies if r.status_code == 429} == {"busy"}
