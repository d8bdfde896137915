"""POST /audio/speech: fields of the body."""

from __future__ import annotations

import base64
import json
import pickle

import pytest

from contract.body import parse
from contract.errors import ApiError
from contract.limits import SPEECH_INPUT_CHARS
from contract.speech.engine import AudioBlock, Clip, SpeechJob
from contract.speech.request import MEDIA_TYPES, SpeechRequest

CLIP = base64.b64encode(bytes(range(256))).decode()


def read(**body: object) -> SpeechRequest:
    return parse(SpeechRequest, json.dumps({"input": "Hallo."} | body).encode())


def refusal(**body: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(**body)
    assert (caught.value.fault.status, caught.value.fault.code) == (400, "invalid_request_error")
    return caught.value


def test_only_the_text_is_required() -> None:
    assert parse(SpeechRequest, b'{"input": "a"}').stream_format == "audio"
    with pytest.raises(ApiError) as caught:
        parse(SpeechRequest, b"{}")
    assert (caught.value.fault.status, caught.value.param) == (400, "input")
    assert caught.value.message == "`input` is missing"


def test_unknown_fields_and_models_are_ignored() -> None:
    assert read(seed=1, model="tts-1", user={"x": 1}).model == "tts-1"


def test_null_means_absent() -> None:
    names = ("voice", "provider", "model", "response_format", "language", "emotion", "reference_audio_b64", "speed")
    assert read(**dict.fromkeys(names)) == read()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input", None),
        ("input", 5),
        ("input", ["a"]),
        ("voice", 1),
        ("voice", {"id": "M1"}),
        ("provider", 1),
        ("provider", ["qwen"]),
        ("model", 3),
        ("language", 3),
        ("response_format", "pcm"),
        ("response_format", "WAV"),
        ("speed", "1"),
        ("speed", True),
        ("stream_format", "raw"),
        ("prompt_text", "x" * (SPEECH_INPUT_CHARS + 1)),
        ("reference_audio_b64", 5),
    ],
)
def test_wrong_fields_are_named(field: str, value: object) -> None:
    assert refusal(**{field: value}).param == field


@pytest.mark.parametrize("form", ["wav", "flac", "ogg", "mp3", "opus", "aac"])
def test_formats_of_the_spec_are_taken(form: str) -> None:
    assert read(response_format=form).response_format == form


def test_the_message_of_a_wrong_choice_names_the_right_ones() -> None:
    assert all(name in refusal(response_format="x").message for name in ("wav", "flac", "ogg", "mp3", "opus", "aac"))


@pytest.mark.parametrize("name", ["emotion", "instruction", "instructions"])
def test_a_style_has_three_names(name: str) -> None:
    assert read(**{name: "whisper"}).style == "whisper"
    assert read(**{name: "x" * 100_000}).style == "x" * 100_000


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_name_that_says_nothing_hides_no_other(nothing: str | None) -> None:
    assert read(emotion=nothing, instruction="whisper").style == "whisper"
    assert read(emotion=nothing, instruction=nothing, instructions="whisper").style == "whisper"
    assert read(emotion="shout", instruction="whisper", instructions="sing").style == "shout"
    assert read(instruction="whisper", instructions="sing").style == "whisper"
    assert read(emotion=nothing, instruction=nothing, instructions=nothing).style == ""


def test_a_whole_number_is_a_speed() -> None:
    assert read(speed=2).speed == 2.0


def test_a_clip_comes_decoded() -> None:
    assert read(reference_audio_b64=CLIP).reference_audio_b64 == bytes(range(256))
    lines = "\r\n".join(CLIP[start : start + 76] for start in range(0, len(CLIP), 76))
    assert read(reference_audio_b64=lines + "\n").reference_audio_b64 == bytes(range(256))


@pytest.mark.parametrize("clip", ["", " \n", "QQ", "QQ==QQ==", "Q*==", "QQ==é", "data:audio/wav;base64,QQ==", "_-8="])
def test_what_is_no_clip_is_refused(clip: str) -> None:
    error = refusal(reference_audio_b64=clip)
    assert error.param == "reference_audio_b64"
    assert not clip.strip() or clip not in error.message


def test_the_message_of_a_long_value_does_not_repeat_it() -> None:
    for body in ({"response_format": "x" * 9000}, {"stream_format": "x" * 9000}, {"reference_audio_b64": "*" * 9000}):
        assert len(refusal(**body).message) < 200


def test_what_crosses_a_handle_survives_the_way() -> None:
    utterance = SpeechJob("a", "de", clip=Clip(b"\0\0", 24_000, "b"), style="calm", speed=0.5, format="mp3")
    block = AudioBlock(b"x", 3, 0.5)
    assert pickle.loads(pickle.dumps((utterance, block))) == (utterance, block)


def test_every_format_but_ogg_has_a_media_type() -> None:
    assert set(MEDIA_TYPES) == {"wav", "flac", "mp3", "opus", "aac"}
    assert (MEDIA_TYPES["wav"], MEDIA_TYPES["flac"], MEDIA_TYPES["mp3"]) == ("audio/wav", "audio/flac", "audio/mpeg")
