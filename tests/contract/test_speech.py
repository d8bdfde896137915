"""POST /audio/speech: fields of the body."""

from __future__ import annotations

import base64
import pickle
from typing import Any

import pytest

from contract.limits import SPEECH_INPUT_CHARS
from contract.speech.engine import AudioBlock, Clip, SpeechJob
from contract.speech.request import MEDIA_TYPES, SpeechRequest
from tests.contract.bodies import read, refusal

CLIP = base64.b64encode(bytes(range(256))).decode()


def speech(**fields: Any) -> SpeechRequest:
    return read(SpeechRequest, {"input": "Hallo."} | fields)


def test_only_the_text_is_required() -> None:
    assert read(SpeechRequest, {"input": "a"}).stream_format == "audio"
    error = refusal(read, SpeechRequest, {})
    assert (error.param, error.message) == ("input", "`input` is missing")


def test_unknown_fields_and_models_are_ignored() -> None:
    assert speech(seed=1, model="tts-1", user={"x": 1}).model == "tts-1"


def test_null_means_absent() -> None:
    names = ("voice", "provider", "model", "response_format", "language", "emotion", "reference_audio_b64", "speed")
    assert speech(**dict.fromkeys(names)) == speech()


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("input", [None, 5, ["a"]]),
        ("voice", [1, {"id": "M1"}]),
        ("provider", [1, ["qwen"]]),
        ("model", [3]),
        ("language", [3]),
        ("response_format", ["pcm", "WAV"]),
        ("speed", ["1", True]),
        ("stream_format", ["raw"]),
        ("prompt_text", ["x" * (SPEECH_INPUT_CHARS + 1)]),
        ("reference_audio_b64", [5]),
    ],
)
def test_wrong_fields_are_named(field: str, values: list[object]) -> None:
    for value in values:
        assert refusal(speech, **{field: value}).param == field, value


def test_formats_are_taken_and_named_where_another_is_asked_for() -> None:
    sentence = refusal(speech, response_format="x").message
    for form in ("wav", "flac", "ogg", "mp3", "opus", "aac"):
        assert speech(response_format=form).response_format == form
        assert form in sentence


@pytest.mark.parametrize("name", ["emotion", "instruction", "instructions"])
def test_a_style_has_three_names(name: str) -> None:
    assert speech(**{name: "whisper"}).style == "whisper"
    assert speech(**{name: "x" * 100_000}).style == "x" * 100_000


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_name_that_says_nothing_hides_no_other(nothing: str | None) -> None:
    assert speech(emotion=nothing, instruction="whisper").style == "whisper"
    assert speech(emotion=nothing, instruction=nothing, instructions="whisper").style == "whisper"
    assert speech(emotion="shout", instruction="whisper", instructions="sing").style == "shout"
    assert speech(instruction="whisper", instructions="sing").style == "whisper"
    assert speech(emotion=nothing, instruction=nothing, instructions=nothing).style == ""


def test_a_whole_number_is_a_speed() -> None:
    assert speech(speed=2).speed == 2.0


def test_a_clip_comes_decoded() -> None:
    assert speech(reference_audio_b64=CLIP).reference_audio_b64 == bytes(range(256))
    lines = "\r\n".join(CLIP[start : start + 76] for start in range(0, len(CLIP), 76))
    assert speech(reference_audio_b64=lines + "\n").reference_audio_b64 == bytes(range(256))


@pytest.mark.parametrize("clip", ["", " \n", "QQ", "QQ==QQ==", "Q*==", "QQ==é", "data:audio/wav;base64,QQ==", "_-8="])
def test_what_is_no_clip_is_refused(clip: str) -> None:
    error = refusal(speech, reference_audio_b64=clip)
    assert error.param == "reference_audio_b64"
    assert not clip.strip() or clip not in error.message


def test_the_message_of_a_long_value_does_not_repeat_it() -> None:
    for body in ({"response_format": "x" * 9000}, {"stream_format": "x" * 9000}, {"reference_audio_b64": "*" * 9000}):
        assert len(refusal(speech, **body).message) < 200


def test_what_crosses_a_handle_survives_the_way() -> None:
    utterance = SpeechJob("a", "de", clip=Clip(b"\0\0", 24_000, "b"), style="calm", speed=0.5, format="mp3")
    block = AudioBlock(b"x", 3, 0.5)
    assert pickle.loads(pickle.dumps((utterance, block))) == (utterance, block)


def test_every_format_but_ogg_has_a_media_type() -> None:
    assert set(MEDIA_TYPES) == {"wav", "flac", "mp3", "opus", "aac"}
    assert (MEDIA_TYPES["wav"], MEDIA_TYPES["flac"], MEDIA_TYPES["mp3"]) == ("audio/wav", "audio/flac", "audio/mpeg")
