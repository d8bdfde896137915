"""POST /audio/speech over the real app: headers, streams, money, and each row of the spec's section 7 (Speech).

The rule that chooses an engine is tested in tests/contract, what engines make of a text in tests/models.
"""

from __future__ import annotations

import base64
import io
import json
import wave
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest

from contract.access import Scope
from contract.errors import FAULTS
from contract.limits import JSON_BODY_BYTES, SPEECH_BODY_BYTES
from deployments.ingress.app import build_app
from deployments.ingress.context import Service
from tests.api.conftest import Api
from tests.catalogs import REAL

pytestmark = pytest.mark.anyio


async def speak(api: Api, text: str = "hello", **fields: Any) -> httpx.Response:
    return await api.send("POST", "/v1/audio/speech", json={"input": text, **fields})


def told(reply: httpx.Response) -> dict[str, Any]:
    """What the engine was asked."""
    assert reply.status_code == 200, reply.text
    about: dict[str, Any] = json.loads(reply.content.split(b"\n")[0])
    return about


def clip(seconds: float, rate: int = 16_000) -> str:
    """A silent recording."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(b"\0\0" * int(seconds * rate))
    return base64.b64encode(file.getvalue()).decode()


def without(api: Api, model_id: str) -> httpx.AsyncClient:
    """A client of the same service, where one engine is not set up."""
    speech = dict(api.service.catalog.speech)
    speech[model_id] = speech[model_id].model_copy(update={"serving": None})
    return client_of(api, replace(api.service, catalog=api.service.catalog.model_copy(update={"speech": speech})))


def client_of(api: Api, service: Service) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(build_app(service)),
        base_url="http://test",
        headers={"authorization": f"Bearer {api.everything}"},
    )


# --- what comes back -------------------------------------------------------------------------------------------------


async def test_default_engine_answers_with_mp3(api: Api) -> None:
    reply = await speak(api, "good morning")
    assert told(reply) == {
        "language": "en", "voice": None, "style": None, "speed": 1.0, "format": "mp3", "clip": None
    }  # fmt: skip
    assert reply.content.endswith(b"good morning end")
    assert reply.headers["content-type"] == "audio/mpeg"
    assert (reply.headers["x-voice-provider"], reply.headers["x-voice"]) == ("mistral", "default")
    assert reply.headers["x-service-model-served"] == "obedient"
    assert not {"x-voice-language", "x-service-model-requested"} & set(reply.headers)


@pytest.mark.parametrize(
    ("provider", "wanted", "media_type"),
    [
        ("supertonic", None, "audio/wav"),
        ("supertonic", "flac", "audio/flac"),
        ("supertonic", "mp3", "audio/wav"),
        ("cosyvoice", "mp3", "audio/wav"),
        ("qwen", "flac", "audio/wav"),
        ("mistral", None, "audio/mpeg"),
        ("mistral", "ogg", "audio/mpeg"),
        ("mistral", "wav", "audio/wav"),
        ("mistral", "flac", "audio/flac"),
        ("mistral", "opus", "audio/ogg; codecs=opus"),
        ("mistral", "aac", "audio/aac"),
    ],
)
async def test_each_engine_has_its_formats(api: Api, provider: str, wanted: str | None, media_type: str) -> None:
    reply = await speak(api, provider=provider, response_format=wanted)
    assert (reply.status_code, reply.headers["content-type"]) == (200, media_type)


@pytest.mark.parametrize("provider", ["supertonic", "qwen"])
async def test_engines_that_obey_a_language_say_which(api: Api, provider: str) -> None:
    reply = await speak(api, provider=provider, language="fr-CA")
    assert (told(reply)["language"], reply.headers["x-voice-language"]) == ("fr", "fr")


async def test_a_voice_brings_its_engine(api: Api) -> None:
    reply = await speak(api, voice="rooom-m-02")
    assert (reply.headers["x-voice-provider"], reply.headers["x-voice"]) == ("qwen", "rooom-m-02")
    assert told(reply)["voice"] == "rooom-m-02"


async def test_a_requested_model_is_named_unless_it_is_what_ran(api: Api) -> None:
    named = await speak(api, model="supertonic-3")
    assert named.headers["x-service-model-requested"] == "supertonic-3"
    foreign = await speak(api, model="tts-1\r\nx: y")
    assert foreign.headers["x-service-model-requested"] == "tts-1??x: y"
    assert "x-service-model-requested" not in (await speak(api, model="obedient")).headers


async def test_only_cosyvoice_has_style_and_speed(api: Api) -> None:
    fields = {"emotion": "softly", "speed": 1.5}
    assert told(await speak(api, provider="cosyvoice", **fields))["style"] == "softly"
    assert told(await speak(api, provider="cosyvoice", instruction="slowly"))["style"] == "slowly"
    assert told(await speak(api, provider="cosyvoice", **fields))["speed"] == 1.5
    others = [told(await speak(api, provider=name, **fields)) for name in ("supertonic", "mistral", "qwen")]
    assert [(other["style"], other["speed"]) for other in others] == [(None, 1.0)] * 3


@pytest.mark.parametrize("field", ["emotion", "instruction", "instructions"])
async def test_a_style_refuses_nothing_where_the_engine_ignores_it(api: Api, field: str) -> None:
    for provider in ("supertonic", "mistral", "qwen"):
        assert told(await speak(api, provider=provider, **{field: "softly " * 10_000}))["style"] is None


@pytest.mark.parametrize(("length", "status"), [(4095, 200), (4096, 200), (4097, 400)])
async def test_a_style_may_be_as_long_as_the_sdk_allows(api: Api, length: int, status: int) -> None:
    reply = await speak(api, provider="cosyvoice", instructions="x" * length)
    assert reply.status_code == status
    if status == 400:
        refused(reply, 400, "invalid_request_error", "emotion")


async def test_an_engine_reads_the_beginning_of_a_long_style_up_to_a_word(api: Api) -> None:
    words = ["gently"] * 100
    style = told(await speak(api, provider="cosyvoice", emotion=" ".join(words)))["style"]
    assert style == " ".join(words[:71])
    assert len(style) <= 500 < len(f"{style} gently")
    assert told(await speak(api, provider="cosyvoice", emotion="x" * 500))["style"] == "x" * 500
    assert told(await speak(api, provider="cosyvoice", emotion=" \n "))["style"] is None


def sound(kind: str, codec: str, rate: int, layout: str) -> bytes:
    """30 s of noise, which no codec makes shorter."""
    import av
    import numpy as np

    file = io.BytesIO()
    with av.open(file, "w", format=kind) as container:
        stream = container.add_stream(codec, rate=rate, layout=layout)
        noise = np.random.default_rng(1).integers(
            -(2**31), 2**31, (1, 30 * rate * len(stream.layout.channels)), np.int64
        )
        frame = av.AudioFrame.from_ndarray(noise.astype(np.int32), format="s32", layout=layout)
        frame.sample_rate = rate
        for packet in (*stream.encode(frame), *stream.encode(None)):
            container.mux(packet)
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "codec", "rate"),
    [
        ("wav", "pcm_s16le", 48_000),
        ("wav", "pcm_f32le", 48_000),
        ("wav", "pcm_s32le", 96_000),
        ("flac", "flac", 96_000),
    ],
)
async def test_a_clip_of_30_seconds_fits_in_every_form(api: Api, kind: str, codec: str, rate: int) -> None:
    encoded = base64.encodebytes(sound(kind, codec, rate, "stereo")).decode()
    samples, clip_rate, _ = told(await speak(api, reference_audio_b64=encoded))["clip"]
    assert (samples / 2 / clip_rate, clip_rate) == (pytest.approx(30, abs=0.2), 24_000)


@pytest.mark.parametrize(
    ("length", "status"), [(SPEECH_BODY_BYTES - 1, 400), (SPEECH_BODY_BYTES, 400), (SPEECH_BODY_BYTES + 1, 413)]
)
async def test_bounds_of_a_body(api: Api, length: int, status: int) -> None:
    start, end = b'{"input": "hello", "reference_audio_b64": "', b'"}'
    body = start + b"A" * (length - len(start) - len(end)) + end
    assert (await api.send("POST", "/v1/audio/speech", content=body)).status_code == status


async def test_other_routes_take_no_longer_bodies_for_it(api: Api) -> None:
    reply = await api.send("POST", "/v1/embeddings", content=b"x" * (JSON_BODY_BYTES + 1))
    assert reply.status_code == 413


# --- other names of voices -------------------------------------------------------------------------------------------


def with_aliases(api: Api, *absent: str) -> httpx.AsyncClient:
    """A client of the same service where `alloy` may be said, and engines are not set up."""
    speech = {
        id: m.model_copy(update={"serving": None}) if id in absent else m
        for id, m in api.service.catalog.speech.items()
    }
    catalog = api.service.catalog.model_copy(update={"speech": speech})
    return client_of(api, replace(api.service, catalog=catalog, voice_aliases=REAL.voice_aliases))


OPENAI_VOICES = [
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse")
]


async def test_every_voice_of_openai_speaks_where_aliases_are_on(api: Api) -> None:
    assert list(REAL.voice_aliases) == OPENAI_VOICES
    async with with_aliases(api) as client:
        listed = (await client.get("/v1/audio/voices")).json()["aliases"]
        for name in OPENAI_VOICES:
            body = {
                "model": "tts-1",
                "voice": name,
                "input": "The weather is fine in Paris today.",
                "instructions": "x",
            }
            reply = await client.post("/v1/audio/speech", json=body)
            assert told(reply)["voice"] == reply.headers["x-voice"] == listed[name]
            assert told(reply)["language"] == "en"


async def test_an_alias_leaves_the_language_of_the_request_alone(api: Api) -> None:
    async with with_aliases(api) as client:
        reply = await client.post("/v1/audio/speech", json={"voice": "alloy", "input": "Good day", "language": "fr"})
    assert told(reply)["language"] == "fr"


async def test_an_alias_takes_a_voice_whose_engine_is_set_up(api: Api) -> None:
    async with with_aliases(api, "supertonic-3") as client:
        reply = await client.post("/v1/audio/speech", json={"voice": "alloy", "input": "hello"})
        assert reply.headers["x-voice"] == "bib-f-30"
    async with with_aliases(api, "supertonic-3", "voxtral-mini-tts") as client:
        reply = await client.post("/v1/audio/speech", json={"voice": "alloy", "input": "hello"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "not_configured")


@pytest.mark.parametrize("name", ["Alloy", "alloy ", "nobody"])
async def test_other_names_stay_unknown(api: Api, name: str) -> None:
    async with with_aliases(api) as client:
        refused(
            await client.post("/v1/audio/speech", json={"voice": name, "input": "x"}), 400, "unknown_voice", "voice"
        )


async def test_a_clip_is_decoded_before_an_engine_sees_it(api: Api) -> None:
    reply = await speak(api, reference_audio_b64=clip(1.0), prompt_text="silence")
    samples, rate, transcript = told(reply)["clip"]
    assert (reply.headers["x-voice-provider"], rate, transcript) == ("cosyvoice", 24_000, "silence")
    assert samples == pytest.approx(2 * 24_000, rel=0.01)
    assert told(reply)["voice"] is None


async def test_marks_of_other_engines_are_left_out(api: Api) -> None:
    reply = await speak(api, "oh <sigh> well [laughter] yes", provider="supertonic")
    assert reply.content.split(b"\n")[1] == b"oh <sigh> well yes end"


# --- streams ---------------------------------------------------------------------------------------------------------


async def test_events_carry_the_same_file(api: Api) -> None:
    plain = await speak(api, "one two three")
    reply = await speak(api, "one two three", stream_format="sse")
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["x-voice-provider"] == "mistral"
    *deltas, done = [json.loads(line[6:]) for line in reply.text.split("\n\n") if line.startswith("data: ")]
    assert {delta["type"] for delta in deltas} == {"speech.audio.delta"}
    assert b"".join(base64.b64decode(delta["audio"]) for delta in deltas) == plain.content
    assert done["type"] == "speech.audio.done"
    assert (done["usage"]["characters"], done["usage"]["seconds"]) == (13, 3.0)


async def test_failure_inside_events_is_an_error_event(api: Api) -> None:
    reply = await speak(api, "one fail", stream_format="sse")
    last = json.loads(reply.text.strip().split("\n\n")[-1].removeprefix("data: "))
    assert last["error"]["code"] == "upstream_error"
    assert "speech.audio.done" not in reply.text


async def test_official_client_speaks_and_streams(api: Api) -> None:
    client = openai.AsyncOpenAI(
        api_key=api.everything, base_url="http://test/v1", http_client=api.client, max_retries=0
    )
    reply = await client.audio.speech.create(model="tts-1", voice="M1", input="one two", response_format="flac")
    assert reply.content.endswith(b"one two end")
    streaming = client.audio.speech.with_streaming_response.create(model="tts-1", voice="M1", input="one two")
    async with streaming as stream:
        assert b"".join([part async for part in stream.iter_bytes()]).endswith(b"one two end")


# --- money -----------------------------------------------------------------------------------------------------------


async def test_characters_are_billed(api: Api) -> None:
    await speak(api, "twelve signs")
    (line,) = await api.usage()
    assert (line.line, line.unit, line.quantity, line.cost_micro_eur) == (
        "speech:voxtral-mini-tts", "characters", 12, 12
    )  # fmt: skip


async def test_a_failure_costs_nothing(api: Api) -> None:
    assert (await speak(api, "fail")).status_code == 502
    assert await api.usage() == []


# --- section 7, row by row -------------------------------------------------------------------------------------------


def refused(reply: httpx.Response, status: int, code: str, param: str | None) -> dict[str, Any]:
    error: dict[str, Any] = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (status, code, param)
    return error


async def test_400_input_missing(api: Api) -> None:
    refused(await api.send("POST", "/v1/audio/speech", json={}), 400, "invalid_request_error", "input")


async def test_400_input_too_long(api: Api) -> None:
    assert (await speak(api, "a" * 4000)).status_code == 200
    error = refused(await speak(api, "a" * 4001), 400, "invalid_request_error", "input")
    assert "4001" in error["message"]
    assert "4000" in error["message"]


@pytest.mark.parametrize("text", ["", "  \n\t", "\u0001\u0007", "😀 🎉", "...", "<breath>"])
async def test_400_nothing_to_speak(api: Api, text: str) -> None:
    refused(await speak(api, text, provider="supertonic"), 400, "invalid_request_error", "input")


async def test_400_text_too_long_for_qwen(api: Api) -> None:
    assert (await speak(api, "ß" * 2000, provider="qwen")).status_code == 200
    refused(await speak(api, "ß" * 2001, provider="qwen"), 400, "text_too_long", "input")


async def test_400_unknown_voice(api: Api) -> None:
    error = refused(await speak(api, voice="alloy"), 400, "unknown_voice", "voice")
    assert "default-de" in error["message"]


async def test_400_unknown_voice_where_qwen_is_chosen(api: Api) -> None:
    refused(await speak(api, voice="M1", provider="qwen"), 400, "unknown_voice", "voice")


async def test_400_voice_provider_mismatch(api: Api) -> None:
    refused(await speak(api, voice="M1", model="cosyvoice-3"), 400, "voice_provider_mismatch", "voice")


async def test_400_language_not_supported_by_supertonic(api: Api) -> None:
    error = refused(await speak(api, provider="supertonic", language="zh"), 400, "language_not_supported", "language")
    assert len(error["supported"]) == 31


async def test_422_language_not_supported_by_qwen(api: Api) -> None:
    error = refused(await speak(api, provider="qwen", language="tr"), 422, "language_not_supported", "language")
    assert error["supported"] == ["de", "en", "fr", "es", "it", "pt", "ru", "ja", "ko", "zh"]


async def test_400_cloning_not_supported(api: Api) -> None:
    reply = await speak(api, provider="qwen", reference_audio_b64=clip(1))
    refused(reply, 400, "cloning_not_supported", "reference_audio_b64")


@pytest.mark.parametrize("audio", ["%%%", "", base64.b64encode(b"no audio at all").decode(), 5])
async def test_400_clip_that_is_no_audio(api: Api, audio: Any) -> None:
    refused(await speak(api, reference_audio_b64=audio), 400, "invalid_request_error", "reference_audio_b64")
    assert (await speak(api)).status_code == 200


async def test_400_clip_over_30_seconds(api: Api) -> None:
    assert (await speak(api, reference_audio_b64=clip(30, 8000))).status_code == 200
    error = refused(
        await speak(api, reference_audio_b64=clip(30.5, 8000)), 400, "invalid_request_error", "reference_audio_b64"
    )
    assert "30 s" in error["message"]


@pytest.mark.parametrize(("speed", "status"), [(0.49, 400), (0.5, 200), (2, 200), (2.01, 400)])
async def test_400_speed_of_cosyvoice(api: Api, speed: float, status: int) -> None:
    assert (await speak(api, provider="cosyvoice", speed=speed)).status_code == status
    assert (await speak(api, provider="supertonic", speed=speed)).status_code == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [("response_format", "pcm"), ("provider", "espeak"), ("stream_format", "json"), ("speed", "fast"), ("voice", 1)],
)
async def test_400_values_outside_a_field(api: Api, field: str, value: Any) -> None:
    refused(await speak(api, **{field: value}), 400, "invalid_request_error", field)


async def test_400_span_that_is_never_closed(api: Api) -> None:
    refused(await speak(api, "<strong>no", provider="cosyvoice"), 400, "invalid_request_error", "input")


async def test_401_without_a_key(api: Api) -> None:
    assert (await api.client.post("/v1/audio/speech", json={"input": "x"})).status_code == 401


async def test_403_without_the_scope(api: Api) -> None:
    key = await api.key(Scope.CHAT)
    reply = await api.send("POST", "/v1/audio/speech", key, json={"input": "x"})
    refused(reply, 403, "missing_scope", None)


async def test_403_voice_not_in_plan(api: Api) -> None:
    await api.organisation("small", "free")
    key = await api.key(*Scope, org="small")
    catalogue, fixed = {"input": "x", "voice": "bib-f-30"}, {"input": "x", "voice": "M1"}
    refused(await api.send("POST", "/v1/audio/speech", key, json=catalogue), 403, "voice_not_in_plan", "voice")
    assert (await api.send("POST", "/v1/audio/speech", key, json=fixed)).status_code == 200
    assert (await speak(api, voice="bib-f-30")).status_code == 200


async def test_429_busy_of_the_provider_has_no_retry_after(api: Api) -> None:
    reply = await speak(api, "busy")
    refused(reply, 429, "busy", None)
    assert "retry-after" not in reply.headers


async def test_502_upstream_error(api: Api) -> None:
    error = refused(await speak(api, "fail"), 502, "upstream_error", None)
    assert error["message"] == FAULTS["UPSTREAM_ERROR"].text


async def test_502_stream_incomplete_of_qwen(api: Api) -> None:
    reply = await speak(api, "half of it fail", provider="qwen")
    refused(reply, 502, "stream_incomplete", None)
    assert await api.usage() == []


async def test_other_errors_of_qwen_stay_what_they_are(api: Api) -> None:
    refused(await speak(api, "busy", provider="qwen"), 429, "busy", None)


async def test_503_engine_not_configured(api: Api) -> None:
    async with without(api, "voxtral-mini-tts") as client:
        reply = await client.post("/v1/audio/speech", json={"input": "x"})
        error = refused(reply, 503, "not_configured", None)
        assert error["type"] == "server_error"
        assert (await client.post("/v1/audio/speech", json={"input": "x", "voice": "M1"})).status_code == 200


async def test_the_header_prefix_can_be_another(api: Api) -> None:
    async with client_of(api, replace(api.service, header_prefix="x-acme-")) as client:
        reply = await client.post("/v1/audio/speech", json={"input": "x", "model": "tts-1"})
    assert (reply.headers["x-acme-model-served"], reply.headers["x-acme-model-requested"]) == ("obedient", "tts-1")
    assert not [name for name in reply.headers if name.startswith("x-service-")]
