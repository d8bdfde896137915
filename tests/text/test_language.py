"""Naming the language of a text."""

import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from configs import load
from tests.text.language_samples import PHRASES, SENTENCES
from text.language import detect

SPOKEN = load("embedded").spoken_languages


def accuracy(samples: list[tuple[str, str]]) -> float:
    wrong = [(language, detect(text, SPOKEN), text) for language, text in samples if detect(text, SPOKEN) != language]
    print(*wrong, sep="\n")
    return 1 - len(wrong) / len(samples)


def test_the_engines_languages_are_all_tested() -> None:
    assert {language for model in load("embedded").speech.values() for language in model.languages} == SPOKEN
    assert SENTENCES.keys() == SPOKEN
    assert {language for language, _ in PHRASES} == SPOKEN


def test_a_short_text_is_believed_to_be_in_a_language_once_an_engine_speaks_it() -> None:
    for language, closest, text in (
        ("af", "nl", "Ons sien julle môre by die huis"),
        ("no", "da", "Jeg heter Kari og kommer fra Bergen"),
        ("mk", "bg", "Ќе се видиме утре во новата зграда"),
        ("sw", "de", "Treni itaondoka baada ya dakika kumi"),
    ):
        assert (detect(text, SPOKEN), detect(text, SPOKEN | {language})) == (closest, language)


def test_sentences_phrases_and_fragments_of_four_words() -> None:
    samples = [(language, text) for language, texts in SENTENCES.items() for text in texts]
    assert (len(samples) >= 150, len(PHRASES) >= 40) == (True, True)
    for change in ("{}", "<breath>{} [laughter] 🎉\x00\x07"):
        assert accuracy([(language, change.format(text)) for language, text in samples]) >= 0.98
    assert accuracy([(language, text.upper()) for language, text in samples]) >= 0.98
    assert accuracy(PHRASES) >= 0.95
    spaced = [(language, text.split()) for language, text in samples if " " in text]
    for cut in (slice(None, 4), slice(-4, None)):
        assert accuracy([(language, " ".join(words[cut])) for language, words in spaced]) >= 0.92


def test_what_says_too_little_is_german() -> None:
    texts = (
        *("", " ", "42", "3,14 €", "...", "🎉🎉", "<breath>", "\x00\x01", "\ufffe\uffff", "\ud800"),
        *("https://example.com/the/quick/brown/fox", "the.people@example.com", "Meeting um 10 Uhr im Office"),
        *("Hallo", "Ja", "Hotel", "Test", "Info", "Super", "Okay", "Tschüss", "Xqzt vrrk", "Lorem"),
    )
    assert {text: detect(text, SPOKEN) for text in texts} == dict.fromkeys(texts, "de")


MIXED = {
    "東京都庁の展望室": "ja",
    "鲜の每日优选超市今天开业了": "zh",
    "Google Chromeを使います": "ja",
    "Das Restaurant 北京 hat heute geschlossen.": "de",
    "The word дом means house in this language.": "en",
    "Я открыл Google Chrome сегодня утром": "ru",
    "오늘 Python 공부": "ko",
    "𠀀𠀁𠀂": "zh",
    "Chào các bạn, hôm nay": "vi",
    "Die Gebu\u0308hr fu\u0308r das Zimmer betra\u0308gt zwo\u0308lf Euro.": "de",
    "รถไฟจะออกในอีกสิบนาที": "th",
    "הרכבת יוצאת בעוד עשר דקות": "he",
    "Treni kwenda Mombasa itaondoka baada ya dakika kumi kutoka jukwaa la tatu.": "sw",
}


def test_scripts_mixtures_and_languages_that_no_engine_speaks() -> None:
    assert {text: detect(text, SPOKEN) for text in MIXED} == MIXED
    # A long text is judged by its beginning.
    assert detect("Das ist ein ganz gewöhnlicher Satz. " * 100 + "今日は天気がいい。" * 10_000, SPOKEN) == "de"


@given(st.text(max_size=60))
@settings(max_examples=500)
def test_no_text_makes_it_fail(text: str) -> None:
    language = detect(text, SPOKEN)
    assert len(language) == 2
    assert language.isascii()


def test_nothing_is_loaded_before_a_text_has_to_be_judged() -> None:
    code = "import sys, text.language as l; assert 'pycld2' not in sys.modules; l.detect('a', set()); "
    subprocess.run([sys.executable, "-c", code + "assert 'pycld2' in sys.modules"], check=True)
