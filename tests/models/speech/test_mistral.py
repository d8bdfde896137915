"""The provider's engine over real sockets: what it asks, what it hears, and what it makes of everything else."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import av
import numpy as np
import pytest

from contract.catalog import AudioFormat, Serving, SpeechModel
from contract.errors import ApiError
from contract.speech.engine import SpeechJob
from models.speech import mistral
from models.speech.mistral import MistralSpeech
from tests.models.refusals import refused
from tests.models.serving import BROKEN
from tests.models.speech.provider import Provider, ramp

KEY = "sk-of-the-test"
OPTIONS = {
    "model": "voxtral-mini-tts-3-0",
    "key_variable": "TEST_SPEECH_KEY",
    "voices": {"bib-f-20": "voice_1"},
    "default_voices": {"de": "voice_481", "en": "voice_478"},
}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as server:
        yield server


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SPEECH_KEY", f"{KEY}\n")


@pytest.fixture(params=["mistral", "openai"])
def engine(request: pytest.FixtureRequest, provider: Provider) -> Iterator[MistralSpeech]:
    loaded = MistralSpeech(model(address=provider.address, wire=request.param), None)
    yield loaded
    loaded.close()


@pytest.fixture
def events(provider: Provider) -> Iterator[MistralSpeech]:
    loaded = MistralSpeech(model(address=provider.address), None)
    yield loaded
    loaded.close()


def model(deadline_s: float = 20, **options: Any) -> SpeechModel:
    serving = Serving(
        adapter="models.speech.mistral:MistralSpeech",
        runtime="test",
        options=OPTIONS | options,
        max_ongoing_requests=16,
        deadline_s=deadline_s,
    )
    return SpeechModel(
        id="voxtral-mini-tts",
        owned_by="t",
        provider="mistral",
        languages=("de",),
        max_input_chars=4000,
        serving=serving,
    )


def heard(engine: MistralSpeech, text: str, **fields: Any) -> np.ndarray[Any, Any]:
    return np.concatenate([part.samples for part in engine.render(SpeechJob(text, "de", **fields))])


def failure(engine: MistralSpeech, text: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        heard(engine, text)
    return caught.value


def test_every_sample_arrives_once(engine: MistralSpeech) -> None:
    samples = heard(engine, "Guten Tag.")
    assert samples.dtype == np.float32
    np.testing.assert_allclose(samples, ramp(), atol=1 / 32768)


def test_the_voice_of_the_language_speaks_where_none_is_asked_for(engine: MistralSpeech, provider: Provider) -> None:
    for language in ("en", "nl"):
        list(engine.render(SpeechJob("Hello.", language)))
    voices = [body.get("voice_id") or body.get("voice") for body, _ in provider.seen]
    assert voices == ["voice_478", "voice_481"]


def test_what_is_asked_of_mistral(events: MistralSpeech, provider: Provider) -> None:
    heard(events, "Guten Tag.", voice="bib-f-20")
    ((body, headers),) = provider.seen
    wanted = {"voice_id": "voice_1", "response_format": "pcm", "stream": True}
    assert body == {"model": "voxtral-mini-tts-3-0", "input": "Guten Tag."} | wanted
    assert headers["authorization"] == f"Bearer {KEY}"


def test_what_is_asked_of_a_server_of_ones_own(provider: Provider) -> None:
    engine = MistralSpeech(model(address=provider.address, wire="openai", key_variable=None), None)
    heard(engine, "Guten Tag.", voice="bib-f-20")
    ((body, headers),) = provider.seen
    wanted = {"voice": "voice_1", "response_format": "wav", "stream_format": "audio"}
    assert body == {"model": "voxtral-mini-tts-3-0", "input": "Guten Tag."} | wanted
    assert "authorization" not in headers
    engine.close()


def test_a_voice_without_an_id_is_switched_off(events: MistralSpeech, provider: Provider) -> None:
    with refused("UNKNOWN_VOICE"):
        heard(events, "Guten Tag.", voice="bib-m-65")
    assert not provider.seen


@pytest.mark.parametrize(
    ("format", "codec"), [("mp3", "mp3float"), ("wav", "pcm_s16le"), ("opus", "opus"), ("flac", "flac"), ("aac", "aac")]
)
async def test_the_file_is_made_here(events: MistralSpeech, format: AudioFormat, codec: str) -> None:
    block = await events.speak_whole(SpeechJob("Guten Tag.", "de", format=format))
    with av.open(io.BytesIO(block.data), "r") as container:
        assert container.streams.audio[0].codec_context.codec.name == codec
        seconds = sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))
    assert block.seconds == len(ramp()) / 24_000
    assert seconds == pytest.approx(block.seconds, abs=0.15)  # codecs pad


@pytest.mark.parametrize(("extra", "requests"), [(0, 1), (1, 2)])
def test_a_long_text_is_asked_for_in_parts(
    events: MistralSpeech, provider: Provider, extra: int, requests: int
) -> None:
    sentence = "Das ist ein Satz von genau fünfzig Zeichen Länge. "
    text = sentence * (mistral.PART_CHARS // len(sentence)) + "x" * extra
    parts = list(events.render(SpeechJob(text, "de")))
    assert len(provider.seen) == requests
    assert "".join(body["input"] for body, _ in provider.seen) == text
    assert parts[-1].characters == len(text)
    assert sum(len(part.samples) for part in parts) == requests * len(ramp())


def test_sound_is_there_before_the_answer_ends(events: MistralSpeech, provider: Provider) -> None:
    parts = events.render(SpeechJob("slowly: Guten Tag.", "de"))
    first = next(parts)
    assert 0 < len(first.samples) < len(ramp())
    assert first.characters == len("slowly: Guten Tag.")
    provider.go_on.set()
    assert len(first.samples) + sum(len(part.samples) for part in parts) == len(ramp())


def test_a_limit_of_the_provider_is_passed_on_without_its_wait(engine: MistralSpeech) -> None:
    error = failure(engine, "limit: please")
    assert (error.fault.name, error.retry_after_s) == ("PROVIDER_BUSY", None)
    assert "Retry-After" not in error.headers()


@pytest.mark.parametrize("how", [*BROKEN, "page:", "noise:", "empty:"])
def test_every_other_answer_is_a_failure_of_the_provider(engine: MistralSpeech, how: str) -> None:
    assert failure(engine, how).fault.name == "UPSTREAM_ERROR"
    assert len(heard(engine, "And it still works.")) == len(ramp())


@pytest.mark.parametrize("how", ["babble:", "undone:", "torn:", "error:"])
def test_events_that_break_off_are_a_failure(events: MistralSpeech, how: str) -> None:
    assert failure(events, how).fault.name == "UPSTREAM_ERROR"


NOBODY = "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    ("options", "text"),
    [({"wire": "openai"}, "short: than announced"), ({"address": NOBODY}, "Hi."), ({"deadline_s": 1e-6}, "Hi.")],
)
def test_a_provider_that_says_less_or_nothing_or_never_ends_has_failed(
    provider: Provider, options: dict[str, Any], text: str
) -> None:
    engine = MistralSpeech(model(**{"address": provider.address} | options), None)
    assert failure(engine, text).fault.name == "UPSTREAM_ERROR"
    engine.close()


def test_a_silent_provider_is_given_up(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mistral, "SILENCE_S", 0.1)
    engine = MistralSpeech(model(address=provider.address), None)
    for how in ("silent:", "slowly:"):
        assert failure(engine, how).fault.name == "UPSTREAM_ERROR"
    engine.close()


def test_sixteen_at_once(engine: MistralSpeech, provider: Provider) -> None:
    with ThreadPoolExecutor(16) as threads:
        sounds = list(threads.map(lambda n: heard(engine, f"together: {n}"), range(16)))
    assert provider.most_at_once == 16
    for samples in sounds:
        np.testing.assert_allclose(samples, ramp(), atol=1 / 32768)


def test_connections_are_used_again(engine: MistralSpeech, provider: Provider) -> None:
    for _ in range(5):
        heard(engine, "Guten Tag.")
    assert provider.connections == 1


def test_neither_key_nor_text_is_told(engine: MistralSpeech, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told = [repr(failure(engine, f"{how} Geheimnis")) for how in ("status:401:", "cut:", "babble:", "limit:")]
    for text in (caplog.text, *told, repr(vars(engine.model))):
        assert KEY not in text
        assert "Geheimnis" not in text
        assert "secret detail" not in text
    assert "voxtral-mini-tts failed: it answered 401" in caplog.text


@pytest.mark.parametrize(
    ("value", "options", "sentence"),
    [
        ("", {}, "set `TEST_SPEECH_KEY` in the environment"),
        ("sk\u200bkey", {}, "set it again"),
        ("sk-key\nsecond line", {}, "set it again"),
        ("sk", {"address": ""}, r"`options\.address`"),
        ("sk", {"address": "api.mistral.ai/v1"}, "must begin with http:// or https://"),
    ],
)
def test_what_is_missing_is_said_at_start(
    value: str, options: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_SPEECH_KEY", value)
    with pytest.raises(ValueError, match=sentence) as caught:
        MistralSpeech(model(**({"address": NOBODY} | options)), None)
    assert not value or value not in str(caught.value) or value == "sk"
