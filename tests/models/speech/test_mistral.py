"""Speech of a provider over real sockets: what `models.speech.mistral` asks, and what it makes of events and sound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from contract.speech.engine import SpeechJob
from models.speech import mistral
from models.speech.mistral import MistralSpeech
from tests.models.providers import KEY, KEY_VARIABLE, SpeechProvider, ramp, speech_model
from tests.models.refusals import refused


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpeechProvider]:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with SpeechProvider() as server:
        yield server


@pytest.fixture
def events(provider: SpeechProvider) -> Iterator[MistralSpeech]:
    loaded = MistralSpeech(speech_model(provider.address), None)
    yield loaded
    loaded.close()


def heard(engine: MistralSpeech, text: str, **fields: Any) -> np.ndarray[Any, Any]:
    return np.concatenate([part.samples for part in engine.render(SpeechJob(text, "de", **fields))])


@pytest.mark.parametrize(
    ("wire", "voice", "wanted"),
    [
        ("mistral", "voice_id", {"response_format": "pcm", "stream": True}),
        ("openai", "voice", {"response_format": "wav", "stream_format": "audio"}),
    ],
)
def test_what_is_asked(provider: SpeechProvider, wire: str, voice: str, wanted: dict[str, Any]) -> None:
    """Without a requested voice, the one of the language speaks, or the first of the stanza."""
    engine = MistralSpeech(speech_model(provider.address, wire=wire), None)
    for language, slug in (("de", "bib-f-20"), ("en", None), ("nl", None)):
        list(engine.render(SpeechJob("Guten Tag.", language, slug)))
    engine.close()
    asked = [body for body, _ in provider.seen]
    assert asked[0] == {"model": "voxtral-mini-tts-3-0", "input": "Guten Tag.", voice: "voice_1"} | wanted
    assert [body[voice] for body in asked[1:]] == ["voice_478", "voice_481"]


def test_a_voice_without_an_id_is_switched_off(events: MistralSpeech, provider: SpeechProvider) -> None:
    with refused("UNKNOWN_VOICE"):
        heard(events, "Guten Tag.", voice="bib-m-65")
    assert not provider.seen


@pytest.mark.parametrize(("extra", "requests"), [(0, 1), (1, 2)])
def test_a_long_text_is_asked_for_in_parts(
    events: MistralSpeech, provider: SpeechProvider, extra: int, requests: int
) -> None:
    sentence = "Das ist ein Satz von genau fünfzig Zeichen Länge. "
    text = sentence * (mistral.PART_CHARS // len(sentence)) + "x" * extra
    parts = list(events.render(SpeechJob(text, "de")))
    assert len(provider.seen) == requests
    assert "".join(body["input"] for body, _ in provider.seen) == text
    assert parts[-1].characters == len(text)
    assert sum(len(part.samples) for part in parts) == requests * len(ramp())


def test_sound_is_there_before_the_answer_ends(events: MistralSpeech, provider: SpeechProvider) -> None:
    parts = events.render(SpeechJob("slowly: Guten Tag.", "de"))
    first = next(parts)
    assert 0 < len(first.samples) < len(ramp())
    assert first.characters == len("slowly: Guten Tag.")
    provider.go_on.set()
    assert len(first.samples) + sum(len(part.samples) for part in parts) == len(ramp())


def test_events_that_break_off_and_sound_that_is_shorter_than_announced_are_a_failure(
    events: MistralSpeech, provider: SpeechProvider
) -> None:
    plain = MistralSpeech(speech_model(provider.address, wire="openai"), None)
    for engine, how in (*((events, how) for how in ("babble:", "undone:", "torn:", "error:")), (plain, "short:")):
        with refused("UPSTREAM_ERROR"):
            heard(engine, how)
    plain.close()


def test_a_silent_provider_is_given_up(provider: SpeechProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mistral, "SILENCE_S", 0.1)
    engine = MistralSpeech(speech_model(provider.address), None)
    for how in ("silent:", "slowly:"):
        with refused("UPSTREAM_ERROR"):
            heard(engine, how)
    engine.close()
