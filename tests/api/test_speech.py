"""POST /audio/speech over the real app: headers, streams, money, and each row of the spec's section 7 (Speech).

The rule that chooses an engine is tested in tests/contract, what engines make of a text in tests/models.
"""

import base64
import io
import json
from typing import Any

import httpx
import pytest
from starlette.types import Message

from contract.errors import FAULTS
from contract.limits import JSON_BODY_BYTES, SPEECH_BODY_BYTES
from tests.api.asgi import exchange, http_scope
from tests.api.conftest import Api, app_over, events, refused
from tests.api.designs import adopt, designer, made
from tests.api.live import scripted
from tests.api.sounds import wav
from tests.catalogs import REAL, with_serving


async def speak(api: Api, text: str = "hello", **fields: Any) -> httpx.Response:
    return await api.send("POST", "/v1/audio/speech", json={"input": text, **fields})


def asked(reply: httpx.Response) -> dict[str, Any]:
    """Members of the job that the engine was given."""
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


async def test_default_engine_answers_with_mp3(api: Api) -> None:
    reply = await speak(api, "good morning")
    assert asked(reply) == {
        "language": "en", "voice": None, "style": None, "speed": 1.0, "format": "mp3", "clip": None
    }  # fmt: skip
    assert reply.content.endswith(b"good morning end")
    assert reply.headers["content-type"] == "audio/mpeg"
    assert (reply.headers["x-voice-provider"], reply.headers["x-voice"]) == ("mistral", "default")
    assert reply.headers["x-service-model-served"] == "obedient"
    assert not {"x-voice-language", "x-service-model-requested"} & set(reply.headers)


CHOSEN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *(
        ({"provider": provider, "response_format": wanted}, {"content-type": media_type})
        for provider, wanted, media_type in (
            ("supertonic", "mp3", "audio/wav"),
            ("supertonic", "flac", "audio/flac"),
            ("mistral", None, "audio/mpeg"),
            ("mistral", "opus", "audio/ogg; codecs=opus"),
            ("mistral", "aac", "audio/aac"),
        )
    ),
    ({"provider": "supertonic", "language": "fr-CA"}, {"x-voice-language": "fr"}),
    ({"provider": "qwen", "language": "fr-CA"}, {"x-voice-language": "fr"}),
    ({"voice": "rooom-m-02"}, {"x-voice-provider": "qwen", "x-voice": "rooom-m-02"}),
    ({"model": "supertonic-3"}, {"x-service-model-requested": "supertonic-3"}),
    ({"model": "tts-1\r\nx: y"}, {"x-service-model-requested": "tts-1??x: y"}),
    ({"model": "obedient"}, {"x-service-model-requested": None}),
]


async def test_headers_say_what_was_chosen(api: Api) -> None:
    for fields, headers in CHOSEN:
        reply = await speak(api, **fields)
        about = asked(reply)
        assert {name: reply.headers.get(name) for name in headers} == headers
        assert headers.get("x-voice-language") in (None, about["language"])
        assert headers.get("x-voice") in (None, about["voice"])
    reply = await speak(api.changed(header_prefix="x-acme-"), model="tts-1")
    assert (reply.headers["x-acme-model-served"], reply.headers["x-acme-model-requested"]) == ("obedient", "tts-1")
    assert not [name for name in reply.headers if name.startswith("x-service-")]


async def test_where_the_default_engine_is_not_set_up_the_one_before_it_speaks(api: Api) -> None:
    """So a service without the key of Mistral's API speaks, and no text leaves the house."""
    assert (await speak(api)).headers["x-voice-provider"] == "mistral"
    bare = api.without("voxtral-mini-tts")
    reply = await speak(bare)
    assert (reply.status_code, reply.headers["x-voice-provider"]) == (200, "supertonic")
    assert refused(await speak(bare, provider="mistral"), 503, "not_configured")["type"] == "server_error"


async def test_only_cosyvoice_has_style_and_speed(api: Api) -> None:
    fields: dict[str, Any] = {"emotion": "softly", "speed": 1.5}
    about = asked(await speak(api, provider="cosyvoice", **fields))
    assert (about["style"], about["speed"]) == ("softly", 1.5)
    for name in ("supertonic", "mistral", "qwen"):
        about = asked(await speak(api, provider=name, **fields))
        assert (about["style"], about["speed"]) == (None, 1.0)
        for field in ("emotion", "instruction", "instructions"):
            assert asked(await speak(api, provider=name, **{field: "softly " * 10_000}))["style"] is None


async def test_a_style_may_be_as_long_as_the_sdk_allows_and_is_read_up_to_a_word(api: Api) -> None:
    async def style(text: str) -> Any:
        return asked(await speak(api, provider="cosyvoice", instructions=text))["style"]

    assert [await style("x" * length) for length in (500, 4095, 4096)] == ["x" * 500] * 3
    refused(await speak(api, provider="cosyvoice", instructions="x" * 4097), 400, "invalid_request_error", "emotion")
    words = ["gently"] * 100
    assert await style(" ".join(words)) == " ".join(words[:71])
    assert len(" ".join(words[:71])) <= 500 < len(" ".join(words[:72]))
    assert await style(" \n ") is None


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
    samples, clip_rate, _ = asked(await speak(api, reference_audio_b64=encoded))["clip"]
    assert (samples / 2 / clip_rate, clip_rate) == (pytest.approx(30, abs=0.2), 24_000)


@pytest.mark.parametrize(
    ("length", "status"), [(SPEECH_BODY_BYTES - 1, 400), (SPEECH_BODY_BYTES, 400), (SPEECH_BODY_BYTES + 1, 413)]
)
async def test_bounds_of_a_body(api: Api, length: int, status: int) -> None:
    start, end = b'{"input": "hello", "reference_audio_b64": "', b'"}'
    body = start + b"A" * (length - len(start) - len(end)) + end
    assert (await api.send("POST", "/v1/audio/speech", content=body)).status_code == status
    other = await api.send("POST", "/v1/embeddings", content=b"x" * (JSON_BODY_BYTES + 1))
    assert other.status_code == 413, "other routes take no longer bodies for it"


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
        assert asked(reply)["voice"] == reply.headers["x-voice"] == aliases[name]
        assert asked(reply)["language"] == "en"
    assert asked(await speak(named, "Good day", voice="alloy", language="fr"))["language"] == "fr"
    for name in ("Alloy", "alloy ", "nobody"):
        refused(await speak(named, voice=name), 400, "unknown_voice", "voice")


async def test_an_alias_takes_a_voice_whose_engine_is_set_up(api: Api) -> None:
    reply = await speak(with_aliases(api, "supertonic-3"), voice="alloy")
    assert reply.headers["x-voice"] == "bib-f-30"
    deaf = with_aliases(api, "supertonic-3", "voxtral-mini-tts")
    refused(await speak(deaf, voice="alloy"), 503, "not_configured", None)


async def test_a_clip_is_decoded_before_an_engine_sees_it(api: Api) -> None:
    reply = await speak(api, reference_audio_b64=clip(1.0), prompt_text="silence")
    samples, rate, transcript = asked(reply)["clip"]
    assert (reply.headers["x-voice-provider"], rate, transcript) == ("cosyvoice", 24_000, "silence")
    assert samples == pytest.approx(2 * 24_000, rel=0.01)
    assert asked(reply)["voice"] is None


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
        *deltas, done = map(json.loads, events(reply))
        sound = b"".join(base64.b64decode(delta["audio"]) for delta in deltas)
        assert done["usage"]["characters"] == len(text)
    assert sound.split(b"\n")[1] == b"Report Add one half cup of milk. end"
    (line,) = await api.usage()
    assert line.quantity == len(text)


async def test_what_designed_a_voice_speaks_it_by_its_recipe_and_another_engine_imitates_its_clip(api: Api) -> None:
    async def spoken(slug: str) -> dict[str, Any]:
        """The job of the engine for a text in this voice."""
        reply = await speak(api, voice=slug)
        about = asked(reply)
        assert (reply.headers["x-voice"], about["voice"]) == (slug, None)
        return about

    await adopt(api, await made(api), slug="by-recipe")
    await adopt(api, await made(api, instruct="clip"), slug="by-clip")
    about = await spoken("by-recipe")
    assert (about["recipe"], about["clip"]) == (json.dumps({"seed": designer(api).jobs[0].seed}), None)
    clip = [96_000, 24_000, api.service.catalog.sentences["en"]]
    about = await spoken("by-clip")
    assert (about.get("recipe"), about["clip"]) == (None, clip)
    # The same voice after another runtime took the engine's place.
    model = api.service.catalog.speech["qwen3-tts"]
    vars(model)["serving"] = with_serving(model, runtime="another").serving
    about = await spoken("by-recipe")
    assert (about.get("recipe"), about["clip"]) == (None, clip)


async def test_events_carry_the_same_file_and_a_failure(api: Api) -> None:
    plain = await speak(api, "one two three")
    reply = await speak(api, "one two three", stream_format="sse")
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["x-voice-provider"] == "mistral"
    *deltas, done = map(json.loads, events(reply))
    assert {delta["type"] for delta in deltas} == {"speech.audio.delta"}
    assert b"".join(base64.b64decode(delta["audio"]) for delta in deltas) == plain.content
    assert done["type"] == "speech.audio.done"
    assert (done["usage"]["characters"], done["usage"]["seconds"]) == (13, 3.0)
    reply = await speak(api, "one fail", stream_format="sse")
    assert json.loads(events(reply)[-1])["error"]["code"] == "upstream_error"
    assert "speech.audio.done" not in reply.text


async def test_a_file_is_billed_before_its_last_sound_goes_out(api: Api) -> None:
    billed: list[int] = []

    async def send(message: Message) -> None:
        if message.get("body"):
            billed.append(len(await api.usage()))

    scope = http_scope("POST", "/v1/audio/speech", [(b"authorization", f"Bearer {api.everything}".encode())])
    body = json.dumps({"input": "one two three"}).encode()
    await exchange(app_over(api.service), scope, body, send)
    assert (billed[0], billed[-1]) == (0, 1)


INVALID, CLIP = "invalid_request_error", "reference_audio_b64"
TOO_LONG = "has 4001 characters; engine `mistral` accepts at most 4000"
NO_LANGUAGE = "language_not_supported"
REFUSED: list[tuple[str, dict[str, Any], int, str, str | None, str]] = [
    ("a" * 4001, {}, 400, INVALID, "input", TOO_LONG),
    ("<breath>", {"provider": "supertonic"}, 400, INVALID, "input", ""),
    *(
        (text, {}, 400, INVALID, "input", "nothing to speak")
        for text in ("🎉", "❤️ 👍🏽", "***", "![](cat.png)", "# 🎉")
    ),
    ("<strong>no", {"provider": "cosyvoice"}, 400, INVALID, "input", ""),
    ("ß" * 2001, {"provider": "qwen"}, 400, "text_too_long", "input", ""),
    ("a", {"voice": "alloy"}, 400, "unknown_voice", "voice", "default-de"),
    ("a", {"voice": "M1", "model": "cosyvoice-3"}, 400, "voice_provider_mismatch", "voice", ""),
    ("a", {"provider": "cosyvoice", "speed": 2.01}, 400, INVALID, "speed", ""),
    ("a", {"provider": "espeak"}, 400, INVALID, "provider", ""),
    ("a", {"stream_format": "json"}, 400, INVALID, "stream_format", ""),
    ("a", {"provider": "supertonic", "language": "zh"}, 400, NO_LANGUAGE, "language", ""),
    ("a", {"provider": "qwen", "language": "tr"}, 422, NO_LANGUAGE, "language", ""),
    ("a", {"provider": "qwen", CLIP: clip(1)}, 400, "cloning_not_supported", CLIP, ""),
    *(("a", {CLIP: audio}, 400, INVALID, CLIP, "") for audio in ("%%%", "", "bm8gYXVkaW8gYXQgYWxs", 5)),
    ("a", {CLIP: clip(30.5, 8000)}, 400, INVALID, CLIP, "30 s"),
    ("busy", {}, 429, "busy", None, ""),
    ("busy", {"provider": "qwen"}, 429, "busy", None, ""),
    ("fail", {}, 502, "upstream_error", None, FAULTS["UPSTREAM_ERROR"].text or ""),
    ("half of it fail", {"provider": "qwen"}, 502, "stream_incomplete", None, ""),
]


async def test_what_is_refused_costs_nothing(api: Api) -> None:
    """The rules themselves are tested in tests/contract."""
    wrong = []
    for text, fields, status, code, param, says in REFUSED:
        reply = await speak(api, text, **fields)
        error = reply.json()["error"] if reply.status_code >= 400 else {"message": ""}
        is_right = (reply.status_code, error.get("code"), error.get("param")) == (status, code, param)
        if not is_right or says not in error["message"] or "retry-after" in reply.headers:
            wrong.append((text[:20], fields, reply.text[:500]))
    assert (wrong, await api.usage()) == ([], [])
