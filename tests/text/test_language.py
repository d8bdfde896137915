"""Naming the language of a text."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs import load
from tests.text.language_samples import PHRASES, SENTENCES
from text.language import detect

SPOKEN = load("embedded").spoken_languages

SENTENCE_FLOOR = 0.98
PHRASE_FLOOR = 0.95
FRAGMENT_FLOOR = 0.92


def accuracy(samples: list[tuple[str, str]]) -> float:
    wrong = [(language, detect(text, SPOKEN), text) for language, text in samples if detect(text, SPOKEN) != language]
    print(*wrong, sep="\n")
    return 1 - len(wrong) / len(samples)


def test_the_engines_languages_are_all_tested() -> None:
    assert {language for model in load("embedded").speech.values() for language in model.languages} == SPOKEN
    assert SENTENCES.keys() == SPOKEN
    assert {language for language, _ in PHRASES} == SPOKEN


@pytest.mark.parametrize(
    ("language", "closest", "text"),
    [
        ("af", "nl", "Ons sien julle môre by die huis"),
        ("no", "da", "Jeg heter Kari og kommer fra Bergen"),
        ("mk", "bg", "Ќе се видиме утре во новата зграда"),
        ("sw", "de", "Treni itaondoka baada ya dakika kumi"),
    ],
)
def test_a_short_text_is_believed_to_be_in_a_language_once_an_engine_speaks_it(
    language: str, closest: str, text: str
) -> None:
    assert detect(text, SPOKEN) == closest
    assert detect(text, SPOKEN | {language}) == language


def test_sentences() -> None:
    samples = [(language, text) for language, texts in SENTENCES.items() for text in texts]
    assert len(samples) >= 150
    assert accuracy(samples) >= SENTENCE_FLOOR
    assert accuracy([(language, text.upper()) for language, text in samples]) >= SENTENCE_FLOOR
    assert (
        accuracy([(language, f"<breath>{text} [laughter] 🎉\x00\x07") for language, text in samples]) >= SENTENCE_FLOOR
    )


def test_phrases() -> None:
    assert len(PHRASES) >= 40
    assert accuracy(PHRASES) >= PHRASE_FLOOR


def test_fragments_of_four_words() -> None:
    spaced = [(language, text.split()) for language, texts in SENTENCES.items() for text in texts if " " in text]
    for cut in (slice(None, 4), slice(-4, None)):
        assert accuracy([(language, " ".join(words[cut])) for language, words in spaced]) >= FRAGMENT_FLOOR


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "42", "3,14 €", "...", "🎉🎉", "<breath>", "\x00\x01", "\ufffe\uffff", "\ud800"),
        *("https://example.com/the/quick/brown/fox", "the.people@example.com"),
        *("Hallo", "Ja", "Hotel", "Test", "Info", "Super", "Okay", "Tschüss", "Meeting um 10 Uhr im Office"),
        *("Xqzt vrrk", "Lorem"),
    ],
)
def test_what_says_too_little_is_german(text: str) -> None:
    assert detect(text, SPOKEN) == "de"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ja", "東京都庁の展望室"),
        ("zh", "鲜の每日优选超市今天开业了"),
        ("ja", "Google Chromeを使います"),
        ("de", "Das Restaurant 北京 hat heute geschlossen."),
        ("en", "The word дом means house in this language."),
        ("ru", "Я открыл Google Chrome сегодня утром"),
        ("ko", "오늘 Python 공부"),
        ("zh", "𠀀𠀁𠀂"),
        ("vi", "Chào các bạn, hôm nay"),
        ("de", "Die Gebu\u0308hr fu\u0308r das Zimmer betra\u0308gt zwo\u0308lf Euro."),
        ("th", "รถไฟจะออกในอีกสิบนาที"),
        ("he", "הרכבת יוצאת בעוד עשר דקות"),
        ("sw", "Treni kwenda Mombasa itaondoka baada ya dakika kumi kutoka jukwaa la tatu."),
    ],
)
def test_scripts_mixtures_and_languages_that_no_engine_speaks(language: str, text: str) -> None:
    assert detect(text, SPOKEN) == language


def test_a_long_text_is_judged_by_its_beginning() -> None:
    assert detect("Das ist ein ganz gewöhnlicher Satz. " * 100 + "今日は天気がいい。" * 10_000, SPOKEN) == "de"


@given(st.text(max_size=60))
@settings(max_examples=500, deadline=None)
def test_no_text_makes_it_fail(text: str) -> None:
    language = detect(text, SPOKEN)
    assert len(language) == 2
    assert language.isascii()


def test_nothing_is_loaded_before_a_text_has_to_be_judged() -> None:
    code = "import sys, text.language as l; assert 'pycld2' not in sys.modules; l.detect('a', set()); "
    subprocess.run([sys.executable, "-c", code + "assert 'pycld2' in sys.modules"], check=True)
