"""Whether a transcript says what a text says: spellings that are the same, and differences that count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text.spoken import LETTERS, compare, doubts, spelled

SAME = [
    ("Room 12, please.", "room twelve please", "en"),
    ("It costs 1,500 €.", "It costs fifteen hundred euros", "en"),
    ("He paid 20 dollars.", "He paid $20.", "en"),
    ("In 1984 Dr. Miller left.", "in nineteen eighty-four, doctor miller left", "en"),
    ("They walk 7 km at 50 %.", "They walk seven kilometers at fifty percent.", "en"),
    ("Nos neveux paient 97 euros.", "nos neveux paient quatre-vingt-dix-sept euros", "fr"),
    ("L'hiver est là.", "L’hiver est la", "fr"),
    ("Veintitrés personas", "23 personas", "es"),
    ("duecentotrentacinque metri", "235 metri", "it"),
    ("São duzentos e trinta gramas.", "São 230 g", "pt"),
    ("It fell to -12 degrees.", "it fell to minus twelve degrees", "en"),
    ("Baja a -3 grados.", "baja a menos tres grados", "es"),
    ("Füße und 21 Bäume", "fuße und einundzwanzig baume", "de"),
]
SPELLED_OTHERWISE = [
    ("the neighbours' favourite harbour", "the neighbors favorite harbor", "en"),
    ("Kandinsky painted it", "Candinsky painted it", "en"),
    ("anyone can come in", "any one can come in", "en"),
    ("l'ultimo autobus si ferma", "l'ultimo autobossiferma", "it"),
]
DIFFERENT = [
    ("the heavy rain", "the rain", "en", ("heavy", "")),
    ("platform 9 is closed", "platform is closed", "en", ("9", "")),
    ("97 chairs", "94 chairs", "en", ("97", "94")),
    ("we come home", "we come home and we come home", "en", ("", "and we come home")),
    ("good morning", "", "en", ("good morning", "")),
    ("the train leaves", "el tren sale", "en", ("the train leaves", "el tren sale")),
]


@pytest.mark.parametrize(("text", "transcript", "language"), SAME)
def test_spellings_of_the_same_words_are_the_same(text: str, transcript: str, language: str) -> None:
    assert spelled(text, language) == spelled(transcript, language)
    assert compare(text, transcript, language).word_error_rate == 0


@pytest.mark.parametrize(("text", "transcript", "language"), SPELLED_OTHERWISE)
def test_what_may_sound_the_same_does_not_count(text: str, transcript: str, language: str) -> None:
    result = compare(text, transcript, language)
    assert result.first is None
    assert result.word_error_rate > 0
    assert result.longest > 0


@pytest.mark.parametrize(("text", "transcript", "language", "first"), DIFFERENT)
def test_what_was_not_said_counts(text: str, transcript: str, language: str, first: tuple[str, str]) -> None:
    assert compare(text, transcript, language).first == first


def test_a_word_that_is_left_out_counts_from_its_length_on() -> None:
    for letters, is_counted in ((LETTERS - 1, False), (LETTERS, True), (LETTERS + 1, True)):
        word = "flower"[:letters]
        assert (compare(f"that {word} there", "that there", "en").first is not None) is is_counted


@pytest.mark.parametrize(
    ("transcript", "is_doubtful"),
    [
        ("we saw the big black horse near the old mill", False),
        ("we saw the big black tiger near the old mill", True),
        ("we saw the big elephants near the old mill", True),
        ("we saw the big near the old mill", False),
        ("we saw the big black horse yesterday near the old mill", False),
        ("we saw the big black tiger near the old", False),
        # Five words in a row, and six.
        ("we saw every umbrella beside elephants quickly the old mill", True),
        ("we saw every umbrella beside elephants quickly walking old mill", False),
    ],
)
def test_a_word_for_another_is_a_doubt_and_none_is_a_fault(transcript: str, is_doubtful: bool) -> None:
    assert compare("We saw the big black horse near the old mill.", transcript, "en").is_doubtful is is_doubtful


def test_the_first_passage_that_counts_and_the_longest_of_all_are_told() -> None:
    result = compare("one small garden behind the old grey house", "one garten behind the house", "en")
    assert result.first == ("small", "") or result.first == ("small garden", "garten")
    assert (result.longest, result.words) == (2, 8)
    assert result.word_error_rate == pytest.approx(4 / 8)


@given(st.text(max_size=60), st.text(max_size=40), st.sampled_from(["en", "fr", "pt", "ja", "hi"]))
def test_any_text_says_itself_and_nothing_breaks_it(text: str, transcript: str, language: str) -> None:
    result = compare(text, text, language)
    assert (result.first, result.longest, result.word_error_rate) == (None, 0, 0)
    assert compare(text, transcript, "en").longest >= 0


THREE = "The train leaves at noon. Ferreira drives it today. Nobody else may board."


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["The train leaves at noon.", "Ferreira drives it today.", "Nobody else may board."], []),
        # One sentence in one piece, one in two, and two in one.
        (
            ["The train leaves at noon.", "Pereira walks it.", "Nobody else may board."],
            [("Ferreira drives it today.", 1, 2)],
        ),
        (
            ["The train leaves at noon.", "Ferreira drives", "the bus.", "Nobody else may board."],
            [("Ferreira drives it today.", 1, 3)],
        ),
        (
            ["The train leaves at noon. Ferreira walks to work.", "Nobody else may board."],
            [("The train leaves at noon. Ferreira drives it today.", 0, 1)],
        ),
        # A word that is missing at the joint of two sentences, and a sentence that is missing.
        (
            ["The train leaves at", "drives it today.", "Nobody else may board."],
            [("The train leaves at noon. Ferreira drives it today.", 0, 2)],
        ),
        (
            ["The train leaves at noon.", "Nobody else may board."],
            [("Ferreira drives it today. Nobody else may board.", 1, 2)],
        ),
        (["", "completely different things"], [(THREE, 0, 2)]),
        ([], [(THREE, 0, 0)]),
    ],
)
def test_what_differs_is_heard_again_by_sentences_and_pieces(
    pieces: list[str], expected: list[tuple[str, int, int]]
) -> None:
    assert doubts(THREE, pieces, "en") == expected


@given(st.lists(st.text("ab c.1", max_size=12), max_size=6), st.text("ab c.1 \n", max_size=60))
def test_doubts_are_in_order_and_never_overlap(pieces: list[str], text: str) -> None:
    places = [place for doubt in doubts(text, pieces, "en") for place in (doubt.first, doubt.end)]
    assert places == sorted(places)
    assert all(0 <= place <= len(pieces) for place in places)
