"""POST /audio/speech: fields of the body, marks inside its text, and who may choose which voice."""

import base64
import pickle
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from configs import load
from contract.access import TARIFFS, Caller, Scope
from contract.errors import ApiError
from contract.limits import SPEECH_INPUT_CHARS
from contract.speech.engine import AudioBlock, Clip, SpeechJob
from contract.speech.request import SpeechRequest
from contract.speech.tags import SpeechTag, pieces, prepared
from contract.speech.voices import SYSTEM_VOICES, Voice, access
from tests.contract.bodies import read, refusal, refused

CLIP = base64.b64encode(bytes(range(256))).decode()


def speech(**fields: Any) -> SpeechRequest:
    return read(SpeechRequest, {"input": "Hallo."} | fields)


def test_only_the_text_is_required() -> None:
    assert read(SpeechRequest, {"input": "a"}).stream_format == "audio"
    error = refusal(read, SpeechRequest, {})
    assert (error.param, error.message) == ("input", "`input` is missing")


def test_unknown_fields_and_models_are_ignored_and_a_whole_number_is_a_speed() -> None:
    assert speech(seed=1, model="tts-1", user={"x": 1}).model == "tts-1"
    assert speech(speed=2).speed == 2.0


def test_null_and_empty_mean_absent() -> None:
    for name in {*SpeechRequest.model_fields} - {"input"}:
        assert speech(**{name: None}) == speech()
        if name == "reference_audio_b64":  # a recording that was lost on the way
            assert refusal(speech, **{name: ""}).param == name
        else:
            assert speech(**{name: ""}) == speech()


def test_wrong_fields_are_named_and_long_values_not_repeated() -> None:
    wrong: dict[str, list[object]] = {
        "input": [None, 5, ["a"]],
        "voice": [1, {"id": "M1"}],
        "provider": [1, ["qwen"]],
        "model": [3],
        "language": [3],
        "response_format": ["pcm", "WAV"],
        "speed": ["1", True],
        "stream_format": ["raw"],
        "prompt_text": ["x" * (SPEECH_INPUT_CHARS + 1)],
        "reference_audio_b64": [5],
    }
    for field, values in wrong.items():
        errors = [refusal(speech, **{field: value}) for value in values]
        assert [error.param for error in errors] == [field] * len(values)
    for body in ({"response_format": "x" * 9000}, {"stream_format": "x" * 9000}, {"reference_audio_b64": "*" * 9000}):
        assert len(refusal(speech, **body).message) < 200


def test_formats_are_taken_and_named_where_another_is_asked_for() -> None:
    sentence = refusal(speech, response_format="x").message
    for form in ("wav", "flac", "ogg", "mp3", "opus", "aac"):
        assert speech(response_format=form).response_format == form
        assert form in sentence
    assert "AI-generated; send `wav`" in refusal(speech, response_format="pcm").message


def test_a_style_has_three_names_and_one_that_says_nothing_hides_no_other() -> None:
    for name in ("emotion", "instruction", "instructions"):
        assert speech(**{name: "x" * 100_000}).style == "x" * 100_000
    assert speech(emotion="shout", instruction="whisper", instructions="sing").style == "shout"
    assert speech(instruction="whisper", instructions="sing").style == "whisper"
    for nothing in (None, ""):
        assert speech(emotion=nothing, instruction="whisper").style == "whisper"
        assert speech(emotion=nothing, instruction=nothing, instructions="whisper").style == "whisper"
        assert speech(emotion=nothing, instruction=nothing, instructions=nothing).style == ""


def test_a_clip_comes_decoded_and_what_is_none_is_refused() -> None:
    assert speech(reference_audio_b64=CLIP).reference_audio_b64 == bytes(range(256))
    lines = "\r\n".join(CLIP[start : start + 76] for start in range(0, len(CLIP), 76))
    assert speech(reference_audio_b64=lines + "\n").reference_audio_b64 == bytes(range(256))
    for clip in ("", " \n", "QQ", "QQ==QQ==", "Q*==", "QQ==é", "data:audio/wav;base64,QQ==", "_-8="):
        error = refusal(speech, reference_audio_b64=clip)
        assert error.param == "reference_audio_b64"
        assert not clip.strip() or clip not in error.message


def test_what_crosses_a_handle_survives_the_way() -> None:
    utterance = SpeechJob("a", "de", clip=Clip(b"\0\0", 24_000, "b"), style="calm", speed=0.5, format="mp3")
    block = AudioBlock(b"x", 3, 0.5)
    assert pickle.loads(pickle.dumps((utterance, block))) == (utterance, block)


ENGINES = {model.provider: model for model in load("embedded").speech.values()}
PROVIDERS = tuple(ENGINES)

OWN_MARKS = {
    "supertonic": ("<breath>", "<sigh>"),
    "cosyvoice": ("[laughter]", "[breath]", "<laughter>", "</laughter>", "<strong>", "</strong>"),
    "mistral": (),
    "qwen": (),
}
"""The inline tags that the API promises."""

ALL_MARKS = sorted({mark for marks in OWN_MARKS.values() for mark in marks})


def taken(text: str, provider: str) -> str:
    return prepared(text, ENGINES[provider], ENGINES.values())


def complaint(text: str, provider: str) -> str:
    place, sentence = refused(taken, text=text, provider=provider)
    assert place == "input"
    return sentence


def test_marks_of_the_spec_belong_to_their_engine() -> None:
    for provider, model in ENGINES.items():
        own = {*model.tags, *(f"<{name}>" for name in model.spans), *(f"</{name}>" for name in model.spans)}
        assert own == set(OWN_MARKS[provider])


def test_an_engine_keeps_its_own_marks_and_never_sees_anothers() -> None:
    for provider, mark in product(PROVIDERS, ALL_MARKS):
        if mark in OWN_MARKS[provider]:
            name = mark.strip("<>/[]")
            text = mark if mark.startswith("[") or name not in ENGINES[provider].spans else f"<{name}>a</{name}>"
            assert taken(f"Ja{text}nein", provider) == f"Ja{text}nein"
        else:
            assert taken(f"Ja{mark}nein", provider) == "Ja nein"
    hidden = {provider: taken("Ja<bre\x00ath>nein", provider) for provider in PROVIDERS}
    assert hidden == dict.fromkeys(PROVIDERS, "Ja nein") | {"supertonic": "Ja<breath>nein"}


def test_pieces_name_what_they_are() -> None:
    model = ENGINES["cosyvoice"]
    parts = list(pieces("A [laughter]<strong>b</strong>[breath]", model))
    marks = [SpeechTag("[laughter]"), SpeechTag("<strong>"), SpeechTag("</strong>"), SpeechTag("[breath]")]
    assert parts == ["A ", marks[0], marks[1], "b", marks[2], marks[3]]
    names = [("laughter", False), ("strong", False), ("strong", True), ("breath", False)]
    assert [(mark.name, mark.closes) for mark in marks] == names
    assert list(pieces("A <strong>", ENGINES["qwen"])) == ["A <strong>"]
    assert list(pieces("", model)) == []


def test_balanced_spans_are_taken() -> None:
    said = ["<strong>a</strong>", "<strong>a</strong><strong>b</strong>", "<strong><laughter>a</laughter></strong>"]
    said += ["<strong><strong>a</strong></strong>", "<strong></strong>a", "[laughter]a", "<strong>[laughter]a</strong>"]
    assert [taken(text, "cosyvoice") for text in said] == said


def test_unbalanced_spans_are_refused_by_their_engine_only() -> None:
    unbalanced = {
        "<strong>a": "<strong>",
        "a</strong>": "</strong>",
        "</strong>a<strong>": "</strong>",
        "<strong>a<laughter>b</strong></laughter>": "</strong>",
        "<strong>a</laughter>": "</laughter>",
        "<laughter><strong>a</strong>": "<laughter>",
        "<strong>a</strong></strong>": "</strong>",
        "[laughter]a</laughter>": "</laughter>",
    }
    for text, named in unbalanced.items():
        assert f"`{named}`" in complaint(text, "cosyvoice")
        for provider in ("supertonic", "mistral", "qwen"):
            assert "<strong>" not in taken(text, provider)


def test_texts_in_which_nothing_is_said_are_refused_and_one_letter_or_digit_is_enough() -> None:
    blank = ("", " ", "\t\r\n", "\u3000\u00a0", "\x00\x01\x7f\x85", "\u200b\u200d", "\x00 🎉")
    said = ["a", "7", "½", "Ⅷ", "日", "ع", "ก", "🎉 a", "é", "ß.", "٣", "a\tb\r\nc"]
    said += ["a < b > c", "<p>x</p>", "[1]", "<Breath> a", "<breath", "x <", "<breath/> a", "a]["]
    for provider in PROVIDERS:
        for text in (*blank, "...", "!?", "🎉🎉", "👩‍👧", "€ + $", "´`"):
            assert "nothing to speak" in complaint(text, provider), text
        for mark in ("<breath>", "[laughter]", "<laughter></laughter>", "<strong>!</strong>"):
            complaint(mark, provider)
        assert [taken(text, provider) for text in said] == said
        assert taken("a\x00b\x1b[31m\x7f c\x9f", provider) == "ab[31m c", "control characters are left out"


@given(st.lists(st.sampled_from([*ALL_MARKS, "a", "<", ">", "/", "[", "]", "\x00", "breath", " "]), max_size=12))
@settings(max_examples=300)
def test_no_engine_ever_sees_a_mark_of_another(parts: list[str]) -> None:
    text = "".join(parts)
    for provider in PROVIDERS:
        try:
            kept = taken(text, provider)
        except ApiError:
            continue
        assert not any(mark in kept for mark in ALL_MARKS if mark not in OWN_MARKS[provider])


VOICES = load("embedded").voices

FIXED = {
    "supertonic": {"M1", "M2", "M3", "M4", "M5", "F1", "F2", "F3", "F4", "F5"},
    "cosyvoice": {"de-thorsten"},
    "qwen": {"rooom-f-01", "rooom-f-02", "rooom-m-01", "rooom-m-02"},
}
"""The promised fixed voices of each engine."""


def caller(plan: str, *entitlements: str) -> Caller:
    return Caller(1, "acme", "k", TARIFFS[plan], frozenset(Scope), entitlements=frozenset(entitlements))


def test_slugs_of_the_catalogue_engine_say_gender_and_age() -> None:
    catalogue = [voice for voice in VOICES.values() if voice.provider == "mistral"]
    assert catalogue
    for voice in catalogue:
        prefix, gender, age = voice.slug.split("-")
        low, high = map(int, voice.age_group.split("-"))
        assert (prefix, gender) == ("bib", voice.gender)
        assert low <= int(age) <= high


def test_fixed_voices_are_there_and_as_the_spec_says() -> None:
    for provider, slugs in FIXED.items():
        assert {slug for slug, voice in VOICES.items() if voice.provider == provider} == slugs
    assert {slug for slug, voice in VOICES.items() if voice.status} == FIXED["qwen"]
    assert all(VOICES[slug].status_note for slug in FIXED["qwen"])
    ages = {"rooom-f-01": "30-35", "rooom-f-02": "45-50", "rooom-m-01": "30-35", "rooom-m-02": "45-50"}
    assert {slug: VOICES[slug].age_group for slug in ages} == ages
    for change in ({"tier": "gold"}, {"gender": "x"}):
        with pytest.raises(ValidationError):
            Voice.model_validate({**VOICES["M1"].model_dump(), **change})
    thorsten = VOICES["de-thorsten"]
    assert (thorsten.gender, thorsten.primary_language, thorsten.origin) == ("m", "de", "cloned")
    assert all(voice.scope == "platform" for voice in VOICES.values())
    assert SYSTEM_VOICES == {"default-de": "de", "default-en": "en"}
    assert not SYSTEM_VOICES.keys() & VOICES.keys()


def test_voice_selection_begins_with_starter_or_the_entitlement() -> None:
    rows: list[tuple[str, tuple[str, ...], bool, str]] = [("free", (), False, "tier")]
    rows += [("free", ("voices",), True, "entitlement"), ("starter", ("voices",), True, "tier")]
    rows += [(plan, (), True, "tier") for plan in ("starter", "standard", "pro", "enterprise")]
    for plan, entitlements, may, via in rows:
        who = caller(plan, *entitlements)
        answer = access(who)
        assert (answer["selectable"], answer["via"], answer["tier"]) == (may, via, plan)
        assert (answer["hint"] is None) == may
        for voice in VOICES.values():
            assert voice.selectable(who) == (may or voice.provider != "mistral")
