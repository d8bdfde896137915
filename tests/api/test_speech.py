"""POST /audio/speech over the real app: headers, streams, money, and each row of the spec's section 7 (Speech).

The rule that chooses an engine is tested in tests/contract, what engines make of a text in tests/models.
"""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import httpx
import openai
import pytest

from contract.access import Scope
from contract.errors import FAULTS
from contract.limits import JSON_BODY_BYTES, SPEECH_BODY_BYTES
from tests.api.conftest import Api, refused
from tests.api.live import scripted
from tests.api.sounds import wav
from tests.catalogs import REAL


async def speak(api: Api, text: str = "hello", **fields: Any) -> httpx.Response:
    return await api.send("POST", "/v1/audio/speech", json={"input": text, **fields})


def told(reply: httpx.Response) -> dict[str, Any]:
    """What the engine was asked."""
    assert reply.status_code == 200, reply.text
    about: dict[str, Any] = json.loads(reply.content.split(b"\n")[0])
    return about


def clip(seconds: float, rate: int = 16_000, sample: bytes = b"\1\0") -> str:
    """A recording, which is speech to a scripted listener unless its sample is 0."""
    return base64.b64encode(wav(seconds, rate, sample)).decode()


@pytest.fixture(autouse=True)
def listener(api: Api) -> None:
    """Takes any sample but 0 for speech; the real one: tests/audio/test_listener.py."""
    scripted(api)


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
        ("supertonic", "mp3", "audio/wav"),
        ("supertonic", "flac", "audio/flac"),
        ("mistral", None, "audio/mpeg"),
        ("mistral", "opus", "audio/ogg; codecs=opus"),
        ("mistral", "aac", "audio/aac"),
    ],
)
async def test_each_engine_has_its_formats(api: Api, provider: str, wanted: str | None, media_type: str) -> None:
    """All of them: tests/contract/test_speech_routing.py."""
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


def with_aliases(api: Api, *absent: str) -> Api:
    """The same service where `alloy` may be said, and engines are not set up."""
    return api.without(*absent).changed(voice_aliases=REAL.voice_aliases)


OPENAI_VOICES = [
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse")
]


async def test_every_voice_of_openai_speaks_where_aliases_are_on(api: Api) -> None:
    assert list(REAL.voice_aliases) == OPENAI_VOICES
    named = with_aliases(api)
    aliases = (await named.send("GET", "/v1/audio/voices")).json()["aliases"]
    for name in OPENAI_VOICES:
        fields = {"model": "tts-1", "voice": name, "instructions": "x"}
        reply = await speak(named, "The weather is fine in Paris today.", **fields)
        assert told(reply)["voice"] == reply.headers["x-voice"] == aliases[name]
        assert told(reply)["language"] == "en"


async def test_an_alias_leaves_the_language_of_the_request_alone(api: Api) -> None:
    reply = await speak(with_aliases(api), "Good day", voice="alloy", language="fr")
    assert told(reply)["language"] == "fr"


async def test_an_alias_takes_a_voice_whose_engine_is_set_up(api: Api) -> None:
    reply = await speak(with_aliases(api, "supertonic-3"), voice="alloy")
    assert reply.headers["x-voice"] == "bib-f-30"
    refused(
        await speak(with_aliases(api, "supertonic-3", "voxtral-mini-tts"), voice="alloy"), 503, "not_configured", None
    )


@pytest.mark.parametrize("name", ["Alloy", "alloy ", "nobody"])
async def test_other_names_stay_unknown(api: Api, name: str) -> None:
    refused(await speak(with_aliases(api), voice=name), 400, "unknown_voice", "voice")


async def test_a_clip_is_decoded_before_an_engine_sees_it(api: Api) -> None:
    reply = await speak(api, reference_audio_b64=clip(1.0), prompt_text="silence")
    samples, rate, transcript = told(reply)["clip"]
    assert (reply.headers["x-voice-provider"], rate, transcript) == ("cosyvoice", 24_000, "silence")
    assert samples == pytest.approx(2 * 24_000, rel=0.01)
    assert told(reply)["voice"] is None


@pytest.mark.parametrize(("voice_s", "status"), [(0.0, 400), (0.2, 400), (0.49, 400), (0.5, 200), (0.51, 200)])
async def test_a_clip_has_a_voice(api: Api, voice_s: float, status: int) -> None:
    file = wav(voice_s, 24_000, b"\1\0") + bytes(2 * 24_000)
    file = wav(voice_s, 24_000, b"\1\0")[:40] + (len(file) - 44).to_bytes(4, "little") + file[44:]
    reply = await speak(api, reference_audio_b64=base64.b64encode(file).decode())
    assert reply.status_code == status
    if status == 400:
        sentence = f"has {voice_s:.2f} s of speech; a voice to imitate needs at least 0.5 s"
        refused(reply, 400, "invalid_request_error", "reference_audio_b64", sentence)
        assert await api.usage() == []


@pytest.mark.parametrize("provider", ["supertonic", "cosyvoice", "mistral", "qwen"])
@pytest.mark.parametrize("stream_format", ["audio", "sse"])
async def test_marks_for_the_eye_reach_no_engine(api: Api, provider: str, stream_format: str) -> None:
    text = "# Report 🎉\n**Add** 1/2 [cup](http://a.b) of *milk*."
    reply = await speak(api, text, provider=provider, language="en", stream_format=stream_format)
    sound = reply.content
    if stream_format == "sse":
        *deltas, done = [json.loads(line[6:]) for line in reply.text.split("\n\n") if line.startswith("data: ")]
        sound = b"".join(base64.b64decode(delta["audio"]) for delta in deltas)
        assert done["usage"]["characters"] == len(text)
    assert sound.split(b"\n")[1] == b"Report Add one half cup of milk. end"
    (line,) = await api.usage()
    assert line.quantity == len(text)


@pytest.mark.parametrize("text", ["🎉", "1️⃣ 👍🏽", "***", "![](cat.png)", "# 🎉"])
async def test_emoji_and_marks_alone_are_nothing_to_speak(api: Api, text: str) -> None:
    refused(await speak(api, text), 400, "invalid_request_error", "input", "nothing to speak")


@pytest.mark.parametrize("text", ["½ " * 50, "🎉 " * 50 + "a", "1 **2** 3"])
async def test_what_is_billed_is_the_text_as_it_came(api: Api, text: str) -> None:
    """Fewer or more characters may be spoken. Who leaves early pays no more than for all of it."""
    for provider in ("mistral", "qwen"):
        await speak(api, text, provider=provider)
    assert [line.quantity for line in await api.usage()] == [len(text)] * 2


@pytest.mark.parametrize(
    "field", ["language", "voice", "provider", "model", "response_format", "prompt_text", "verify"]
)
async def test_an_empty_field_is_absent(api: Api, field: str) -> None:
    plain, empty = await speak(api, "good day"), await speak(api, "good day", **{field: ""})
    assert (empty.status_code, empty.content) == (200, plain.content)
    assert {*empty.headers} == {*plain.headers}


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


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fields", "status", "code", "param", "says"),
    [
        (
            "a" * 4001,
            {},
            400,
            "invalid_request_error",
            "input",
            "has 4001 characters; engine `mistral` accepts at most 4000",
        ),
        ("<breath>", {"provider": "supertonic"}, 400, "invalid_request_error", "input", ""),
        ("<strong>no", {"provider": "cosyvoice"}, 400, "invalid_request_error", "input", ""),
        ("ß" * 2001, {"provider": "qwen"}, 400, "text_too_long", "input", ""),
        ("a", {"voice": "alloy"}, 400, "unknown_voice", "voice", "default-de"),
        ("a", {"voice": "M1", "model": "cosyvoice-3"}, 400, "voice_provider_mismatch", "voice", ""),
        ("a", {"provider": "cosyvoice", "speed": 2.01}, 400, "invalid_request_error", "speed", ""),
        ("a", {"provider": "espeak"}, 400, "invalid_request_error", "provider", ""),
        ("a", {"stream_format": "json"}, 400, "invalid_request_error", "stream_format", ""),
        ("busy", {}, 429, "busy", None, ""),
        ("busy", {"provider": "qwen"}, 429, "busy", None, ""),
        ("fail", {}, 502, "upstream_error", None, FAULTS["UPSTREAM_ERROR"].text),
        ("half of it fail", {"provider": "qwen"}, 502, "stream_incomplete", None, ""),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else None,
)
async def test_what_is_refused_costs_nothing(
    api: Api, text: str, fields: dict[str, Any], status: int, code: str, param: str | None, says: str
) -> None:
    """The rules themselves are tested in tests/contract."""
    reply = await speak(api, text, **fields)
    refused(reply, status, code, param, says)
    assert "retry-after" not in reply.headers
    assert await api.usage() == []


async def test_the_longest_texts_are_spoken(api: Api) -> None:
    assert (await speak(api, "a" * 4000)).status_code == 200
    assert (await speak(api, "ß" * 2000, provider="qwen")).status_code == 200


@pytest.mark.parametrize(
    ("provider", "language", "status", "count"), [("supertonic", "zh", 400, 31), ("qwen", "tr", 422, 10)]
)
async def test_a_language_that_is_not_spoken_is_refused_with_those_that_are(
    api: Api, provider: str, language: str, status: int, count: int
) -> None:
    reply = await speak(api, provider=provider, language=language)
    assert len(refused(reply, status, "language_not_supported", "language")["supported"]) == count


async def test_400_cloning_not_supported(api: Api) -> None:
    reply = await speak(api, provider="qwen", reference_audio_b64=clip(1))
    refused(reply, 400, "cloning_not_supported", "reference_audio_b64")


@pytest.mark.parametrize("audio", ["%%%", "", base64.b64encode(b"no audio at all").decode(), 5])
async def test_400_clip_that_is_no_audio(api: Api, audio: Any) -> None:
    refused(await speak(api, reference_audio_b64=audio), 400, "invalid_request_error", "reference_audio_b64")
    assert (await speak(api)).status_code == 200


async def test_400_clip_over_30_seconds(api: Api) -> None:
    assert (await speak(api, reference_audio_b64=clip(30, 8000))).status_code == 200
    reply = await speak(api, reference_audio_b64=clip(30.5, 8000))
    refused(reply, 400, "invalid_request_error", "reference_audio_b64", "30 s")


async def test_403_voice_not_in_plan(api: Api) -> None:
    await api.organisation("small", "free")
    key = await api.key(*Scope, org="small")
    catalogue, fixed = {"input": "x", "voice": "bib-f-30"}, {"input": "x", "voice": "M1"}
    refused(await api.send("POST", "/v1/audio/speech", key, json=catalogue), 403, "voice_not_in_plan", "voice")
    assert (await api.send("POST", "/v1/audio/speech", key, json=fixed)).status_code == 200
    assert (await speak(api, voice="bib-f-30")).status_code == 200


async def test_503_engine_not_configured(api: Api) -> None:
    bare = api.without("voxtral-mini-tts")
    assert refused(await speak(bare, provider="mistral"), 503, "not_configured")["type"] == "server_error"
    assert (await speak(bare, voice="M1")).status_code == 200


async def test_where_the_default_engine_is_not_set_up_the_one_before_it_speaks(api: Api) -> None:
    """So a service without the key of Mistral's API speaks, and no text leaves the house."""
    reply = await speak(api.without("voxtral-mini-tts"))
    assert (reply.status_code, reply.headers["x-voice-provider"]) == (200, "supertonic")
    assert (await speak(api)).headers["x-voice-provider"] == "mistral"


async def test_the_header_prefix_can_be_another(api: Api) -> None:
    reply = await speak(api.changed(header_prefix="x-acme-"), model="tts-1")
    assert (reply.headers["x-acme-model-served"], reply.headers["x-acme-model-requested"]) == ("obedient", "tts-1")
    assert not [name for name in reply.headers if name.startswith("x-service-")]
