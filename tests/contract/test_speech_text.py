"""Marks inside a text: one's own, another's, unbalanced ones, and texts in which nothing is said."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs import load
from contract.errors import ApiError
from contract.speech.tags import SpeechTag, pieces, prepared
from tests.contract.bodies import refused

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


@pytest.mark.parametrize("provider", PROVIDERS)
def test_marks_of_the_spec_belong_to_their_engine(provider: str) -> None:
    model = ENGINES[provider]
    own = {*model.tags, *(f"<{name}>" for name in model.spans), *(f"</{name}>" for name in model.spans)}
    assert own == set(OWN_MARKS[provider])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("mark", ALL_MARKS)
def test_an_engine_keeps_its_own_marks_and_never_sees_anothers(provider: str, mark: str) -> None:
    if mark in OWN_MARKS[provider]:
        name = mark.strip("<>/[]")
        text = mark if mark.startswith("[") or name not in ENGINES[provider].spans else f"<{name}>a</{name}>"
        assert taken(f"Ja{text}nein", provider) == f"Ja{text}nein"
    else:
        assert taken(f"Ja{mark}nein", provider) == "Ja nein"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("text", ["a < b > c", "<p>x</p>", "[1]", "<Breath> a", "<breath", "x <", "<breath/> a", "a]["])
def test_what_is_nobodys_mark_is_text(provider: str, text: str) -> None:
    assert taken(text, provider) == text


def test_pieces_name_what_they_are() -> None:
    model = ENGINES["cosyvoice"]
    parts = list(pieces("A [laughter]<strong>b</strong>[breath]", model))
    marks = [SpeechTag("[laughter]"), SpeechTag("<strong>"), SpeechTag("</strong>"), SpeechTag("[breath]")]
    assert parts == ["A ", marks[0], marks[1], "b", marks[2], marks[3]]
    assert [(mark.name, mark.closes) for mark in marks] == [
        ("laughter", False),
        ("strong", False),
        ("strong", True),
        ("breath", False),
    ]
    assert list(pieces("A <strong>", ENGINES["qwen"])) == ["A <strong>"]
    assert list(pieces("", model)) == []


@pytest.mark.parametrize(
    "text",
    [
        "<strong>a</strong>",
        "<strong>a</strong><strong>b</strong>",
        "<strong><laughter>a</laughter></strong>",
        "<strong><strong>a</strong></strong>",
        "<strong></strong>a",
        "[laughter]a",
        "<strong>[laughter]a</strong>",
    ],
)
def test_balanced_spans_are_taken(text: str) -> None:
    assert taken(text, "cosyvoice") == text


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("<strong>a", "<strong>"),
        ("a</strong>", "</strong>"),
        ("</strong>a<strong>", "</strong>"),
        ("<strong>a<laughter>b</strong></laughter>", "</strong>"),
        ("<strong>a</laughter>", "</laughter>"),
        ("<laughter><strong>a</strong>", "<laughter>"),
        ("<strong>a</strong></strong>", "</strong>"),
        ("[laughter]a</laughter>", "</laughter>"),
    ],
)
def test_unbalanced_spans_are_refused_by_their_engine_only(text: str, named: str) -> None:
    assert f"`{named}`" in complaint(text, "cosyvoice")
    for provider in ("supertonic", "mistral", "qwen"):
        assert "<strong>" not in taken(text, provider)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\t\r\n",
        "\u3000\u00a0",
        "...",
        "!?",
        "🎉🎉",
        "👩‍👧",
        "\x00\x01\x7f\x85",
        "\u200b\u200d",
        "€ + $",
        "´`",
        "\x00 🎉",
    ],
)
def test_texts_in_which_nothing_is_said_are_refused(provider: str, text: str) -> None:
    assert "nothing to speak" in complaint(text, provider)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("mark", ["<breath>", "[laughter]", "<laughter></laughter>", "<strong>!</strong>"])
def test_marks_alone_are_nothing_to_speak(provider: str, mark: str) -> None:
    complaint(mark, provider)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("text", ["a", "7", "½", "Ⅷ", "日", "ع", "ก", "🎉 a", "é", "ß.", "٣"])
def test_one_letter_or_digit_is_enough(provider: str, text: str) -> None:
    assert taken(text, provider) == text


@pytest.mark.parametrize("provider", PROVIDERS)
def test_control_characters_are_left_out(provider: str) -> None:
    assert taken("a\x00b\x1b[31m\x7f c\x9f", provider) == "ab[31m c"
    assert taken("a\tb\r\nc", provider) == "a\tb\r\nc"


def test_a_control_character_does_not_hide_a_mark() -> None:
    assert taken("Ja<bre\x00ath>nein", "qwen") == "Ja nein"
    assert taken("Ja<bre\x00ath>nein", "supertonic") == "Ja<breath>nein"


@given(st.lists(st.sampled_from([*ALL_MARKS, "a", "<", ">", "/", "[", "]", "\x00", "breath", " "]), max_size=12))
@settings(max_examples=300, deadline=None)
def test_no_engine_ever_sees_a_mark_of_another(parts: list[str]) -> None:
    text = "".join(parts)
    for provider in PROVIDERS:
        try:
            kept = taken(text, provider)
        except ApiError:
            continue
        assert not any(mark in kept for mark in ALL_MARKS if mark not in OWN_MARKS[provider])
