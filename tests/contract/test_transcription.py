"""Pure rules of transcription: languages, forms, subtitles, how parts become an answer."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import configs
from contract.errors import INVALID_REQUEST, LANGUAGE_NOT_SUPPORTED, REQUEST_TOO_LARGE, ApiError
from contract.limits import CONTEXT_TERMS, TRANSCRIPTION_PROMPT_CHARS, UPLOAD_BYTES
from contract.transcription import engine
from contract.transcription.engine import LANGUAGES, Segment, TimedWord, TranscriptUpdate, named_language, words
from contract.transcription.request import TranscriptionRequest, choose, fields, plan
from contract.transcription.transcript import Transcript, reply, srt, vtt
from contract.transcription.uploads import RECORDING_TYPES, UploadRequest
from tests.catalogs import with_serving
from tests.contract.bodies import refusal

MODELS = configs.load("embedded").transcription
DEFAULT, WHISPER = MODELS["voxtral-mini-transcribe"], MODELS["whisper-large-v3"]


def transcript(**asked: Any) -> Transcript:
    model = choose(TranscriptionRequest(**asked), list(MODELS.values()))
    assert model
    return Transcript(plan(TranscriptionRequest(**asked), model))


def test_there_are_a_hundred_languages_with_cantonese() -> None:
    assert len(set(LANGUAGES)) == len(LANGUAGES) == 100
    assert "yue" in LANGUAGES
    assert set(engine.ALIASES.values()) <= set(LANGUAGES)
    assert not engine.ALIASES.keys() & set(LANGUAGES)


@given(code=st.sampled_from(LANGUAGES), region=st.from_regex(r"([-_][A-Za-z0-9]{2,4})?", fullmatch=True))
def test_a_region_is_cut(code: str, region: str) -> None:
    assert named_language(f" {code.upper()}{region} ") == code


def test_no_language_is_named() -> None:
    for code in (None, "", "  ", "auto", " AUTO "):
        assert (named_language(code), plan(TranscriptionRequest(language=code), DEFAULT).language) == (None, None)


@given(st.text(max_size=12))
def test_whatever_is_sent_to_whisper_is_a_language_that_it_knows_or_refused(code: str) -> None:
    with suppress(ApiError):
        found = plan(TranscriptionRequest(language=code), WHISPER)
        assert found.language is None or found.language in WHISPER.languages


def test_the_default_model_echoes_what_was_sent_and_its_engine_hears_a_code_that_it_knows() -> None:
    codes = {"de": "de", "de-DE": "de", "DE": "de", "nb": "no", "nb-NO": "no", "iw": "he", "zz": None, "yue": None}
    for sent, code in codes.items():
        planned = plan(TranscriptionRequest(language=f" {sent} ", response_format="verbose_json"), DEFAULT)
        assert planned.job(b"").language == code
        made = Transcript(planned)
        made.add(TranscriptUpdate(1.0, 1.0, code or "en"))
        assert reply(made)["language"] == sent


def test_a_refusal_names_what_is_known_and_what_is_no_code_is_refused_by_the_default_model_too() -> None:
    error = refusal(plan, TranscriptionRequest(language="xx"), WHISPER, fault=LANGUAGE_NOT_SUPPORTED)
    assert error.extra["supported"] == sorted(WHISPER.languages)
    odd = ("d", "german", "de DE", "d3", "../de", "-de", "de-", "d\u00e9", "de-DE-toolongasubtag", "de" + "-x" * 9)
    assert {refusal(plan, TranscriptionRequest(language=sent), DEFAULT).param for sent in odd} == {"language"}


WORDS = {"timestamp_granularities": "word", "response_format": "verbose_json"}
HEARD = TranscriptUpdate(2.0, 2.0, "en", (Segment("a b", 0, 1, (TimedWord("a", 0, 0.5), TimedWord("b", 0.5, 1))),))


def test_where_an_engine_times_no_words_the_default_model_gives_times_of_passages_and_whisper_refuses() -> None:
    passage = [{"text": "a b", "start": 0.0, "end": 1.0, "speakerId": None}]
    for times, texts in ((["segment"], ["a b"]), (["segment", "word"], ["a", "b"])):
        planned = plan(TranscriptionRequest(**WORDS), with_serving(DEFAULT, options={"times": times}))
        assert planned.words is ("word" in times)
        made = Transcript(planned)
        made.add(HEARD)
        segments = reply(made)["segments"]
        assert [part["text"] for part in segments] == texts
        assert planned.words or segments == passage
    mute = with_serving(WHISPER, options={"times": ["segment"]})
    assert refusal(plan, TranscriptionRequest(**WORDS), mute).param == "timestamp_granularities"
    assert not plan(TranscriptionRequest(timestamp_granularities="word"), mute).words


def test_words_are_timed_only_where_the_answer_shows_them() -> None:
    shown = {"json": False, "text": False, "verbose_json": True}
    asked = {form: TranscriptionRequest(timestamp_granularities="word", response_format=form) for form in shown}
    assert {form: plan(request, DEFAULT).words for form, request in asked.items()} == shown


def test_of_a_prompt_that_is_too_long_the_end_is_kept_and_terms_are_counted_as_they_came() -> None:
    for more in (-1, 0, 1):
        prompt = "b" + "a" * (TRANSCRIPTION_PROMPT_CHARS - 1 + more)
        assert TranscriptionRequest(prompt=prompt).prompt == prompt[-TRANSCRIPTION_PROMPT_CHARS:]
    for count in (CONTEXT_TERMS - 1, CONTEXT_TERMS):
        terms = ["Ray"] * (count - 1) + ["two words"]
        assert len(TranscriptionRequest(context_bias=terms).context_bias) == count - 1


def test_a_form_may_repeat_lists_and_nothing_else_and_a_field_that_nobody_filled_in_was_not_sent() -> None:
    pairs = [("context_bias", "a"), ("context_bias[]", "b"), ("timestamp_granularities[]", "word"), ("include[]", "x")]
    assert fields(pairs) == {"context_bias": ["a", "b"], "timestamp_granularities": ["word"], "include": "x"}
    names = [*TranscriptionRequest.model_fields, "context_bias[]", "timestamp_granularities[]"]
    assert fields((name, "") for name in names) == {}
    assert TranscriptionRequest(**dict.fromkeys(TranscriptionRequest.model_fields, "")) == TranscriptionRequest()
    assert fields([("language", ""), ("language", "de")]) == {"language": "de"}
    assert fields([("user", "a"), ("user", "b")]) == {"user": "b"}  # not one of ours
    with pytest.raises(ApiError, match="`prompt` was sent twice"):
        fields([("prompt", "a"), ("prompt", "b")])


def test_switches_are_read_as_forms_spell_them() -> None:
    means: dict[Any, bool] = {"true": True, "1": True, "False": False, "": False, True: True}
    assert {sent: TranscriptionRequest(stream=sent, format_text=sent).stream for sent in means} == means


def test_an_unknown_model_is_the_default_one_and_without_a_default_there_is_none() -> None:
    for model in (None, "", "whisper-1", "WHISPER-LARGE-V3", "x" * 1000):
        assert choose(TranscriptionRequest(model=model), list(MODELS.values())) is DEFAULT
    assert choose(TranscriptionRequest(), [WHISPER]) is None
    assert choose(TranscriptionRequest(model=WHISPER.id), [WHISPER]) is WHISPER


JOINED = {
    "One.|//Two.|Three.|5|6/안녕|하세요": "One. Two. Three. 5 6 안녕 하세요",
    "今日は|2024/年、|「はい。」/…|コーヒ/ー": "今日は2024年、「はい。」…コーヒー",
    "你好./再见|Hello/再见": "你好.再见Hello再见",
    "สวัส|ดี?|ครับ/ສະ|ບາຍ/မင်္ဂ|လာ/សួស្|តី": "สวัสดี?ครับສະບາຍမင်္ဂလာសួស្តី",
}


def test_deltas_are_the_text_which_is_joined_as_its_scripts_are_written() -> None:
    for parts, text in JOINED.items():
        made, each = transcript(), [[Segment(piece, 0, 1) for piece in part.split("|")] for part in parts.split("/")]
        updates = [TranscriptUpdate(9.0), *(TranscriptUpdate(9.0, 9.0, None, tuple(segments)) for segments in each)]
        assert "".join(map(made.add, updates)) == made.text == text


@given(st.text(st.sampled_from("ab. \n今ー。ก็1")))
def test_words_are_the_text(text: str) -> None:
    assert "".join(words(text)) == text.rstrip()
    assert [len(words(signs)) for signs in ("ab ab.", "ก็今 a今", "")] == [2, 2, 0]


def test_the_default_model_bills_what_was_listened_to() -> None:
    for done_s, billed in ((0.0, 0), (0.1, 1), (3.0, 3), (3.2, 4), (99.0, 9)):
        made = transcript()
        made.add(TranscriptUpdate(8.5, done_s))
        assert made.billed_seconds == billed


def test_times_are_rounded_once() -> None:
    stamps = {0.0: "00:00:00,000", 1.9994: "00:00:01,999", 1.9996: "00:00:02,000", 59.9996: "00:01:00,000"}
    stamps |= {3599.9996: "01:00:00,000", 360_000.0: "100:00:00,000", -0.001: "00:00:00,000"}
    for seconds, stamp in stamps.items():
        assert srt([Segment("a", seconds, seconds)]).splitlines()[1] == f"{stamp} --> {stamp}"
        assert vtt([Segment("a", seconds, seconds)]).splitlines()[2].startswith(stamp.replace(",", "."))


@given(st.text())
def test_no_text_makes_a_cue_of_its_own(text: str) -> None:
    for made, cues in ((srt([Segment(text, 0, 1)] * 2), 2), (vtt([Segment(text, 0, 1)] * 2), 2)):
        assert made.count(" --> ") == cues
        assert made.split("\n").count("") <= 2 * cues + 2


def test_nothing_heard_is_an_empty_file() -> None:
    assert (srt([]), vtt([])) == ("", "WEBVTT\n\n")


def test_types_and_sizes_of_recordings() -> None:
    for mime in (*RECORDING_TYPES, "audio/webm;codecs=opus", " AUDIO/OGG ; codecs=opus"):
        UploadRequest(mime=mime, size=1).check()
    for size in (1, UPLOAD_BYTES - 1, UPLOAD_BYTES):
        UploadRequest(mime="audio/ogg", size=size).check()
    for size, fault in ((UPLOAD_BYTES + 1, REQUEST_TOO_LARGE), (0, INVALID_REQUEST), (-1, INVALID_REQUEST)):
        refusal(UploadRequest(mime="audio/ogg", size=size).check, fault=fault)
