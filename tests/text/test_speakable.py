"""Texts that were written for the eye: marks and emoji are silent, fractions are words, all else stays."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import configs
from benchmarks.quality.spoken import SENTENCES
from contract.speech.tags import tags_of
from tests.text import language_samples
from text.speakable import _PARTS, _WORDS, speakable
from text.spoken import compare

ENGINES = configs.load("embedded").speech.values()
LANGUAGES = sorted({language for model in ENGINES for language in model.languages})
TAGS = {tag for model in ENGINES for tag in tags_of(model)}

SILENT = [
    # stress
    ("You **shouldn't** panic, it is *fine*.", "You shouldn't panic, it is fine."),
    ("__Very__ _good_, ***indeed***, ~~no~~ **a *b***.", "Very good, indeed, no a b."),
    ('**Achtung:** bald. *"Hi"* (*so*)', 'Achtung: bald. "Hi" (so)'),
    ("这是**重点**内容。これは**重要**です。", "这是重点内容。これは重要です。"),
    ("Frei**heit** und **Donau**dampf", "Freiheit und Donaudampf"),
    ("*one\nline* and **more\n\nthan** one", "one\nline and **more\n\nthan** one"),
    # lines
    ("# Weather report", "Weather report"),
    ("## Today ##\nSun.\n### Tomorrow\nRain.", "Today\n\nSun.\n\nTomorrow\n\nRain."),
    (
        "Buy:\n- milk\n* eggs\n+ two\n  lines\n• tea\n- [x] jam\nDone.",
        "Buy:\n\nmilk\n\neggs\n\ntwo\n  lines\n\ntea\n\njam\n\nDone.",
    ),
    ("1. one\n2. two", "1. one\n2. two"),
    ("> It was\n> the best\n>> of times", "It was\nthe best\nof times"),
    ("> - # a", "a"),
    ("Title\n=====\nText\n\n---\n\n* * *\nEnd", "Title\n\nText\n\n\n\n\nEnd"),
    ("| Day | Sky |\n|:---|---:|\n| Monday | **sun** |\n| Sunday | |\nEnd", "Day, Sky\n\nMonday, sun\n\nSunday\n\nEnd"),
    ("Day | Sky\n--- | ---\r\nMonday | sun\r\n", "Day, Sky\n\nMonday, sun"),
    ("```python\nprint(1)\n```\nDone", "print(1)\n\nDone"),
    ("~~~\na\n~~~", "a"),
    ("Use `ls` or ``a`b``.", "Use ls or a`b."),
    # links
    ('See [the *page*](http://a.b/c_d "t") and [x](<a b>).', "See the page and x."),
    ("![A cat](cat.png) and [![dog](d)](http://x.y/(z))", "A cat and dog"),
    ("At <https://a.b/_c_> or <me@a.b>", "At https://a.b/_c_ or me@a.b"),
    (r"1\. a \*star\* and 5 \> 4", "1. a star and 5 > 4"),
    # emoji
    ("Great job 🎉😊 everyone!", "Great job everyone!"),
    ('Hi 🎉! **🎉 Yes** (🎉 no) "👍" a🎉b', 'Hi! Yes (no) "" a b'),
    ("👨‍👩‍👧‍👦 a 👍🏽 b 🇩🇪🇫🇷 c 1️⃣ d #️⃣ e 🏴󠁧󠁢󠁥󠁮󠁧󠁿 f ❤️ g ❤ h ☀︎ i", "a b c d e f g h i"),
    ("🎉 - milk\n🎉\n- eggs 🥚", "milk\n\neggs"),
    ("🎉🎉", ""),
    ("1️⃣ 2️⃣", ""),
    ("# 🎉\n**\n![](a.png)", "**"),
]
SAYING = [
    *("$5*2", "2*3 and 4*5", "$5*2, 3*4.", "5€*2 und 3€*4", "(2*3)*4*(5)", "5 * 3 * 2", "2**3**4", "x**y and z**w"),
    *("5 €* und 7 €*.", "Only 5 €*.\n\n* while stocks last", "Lehrer*innen und Bürger*innenmeister*innen", "jede*r"),
    *("90 km/h", "-5 °C", "3 < 4 > 2 >= 1", "Tom & Jerry", "50 % + 3 = ?", "½kg", "a\r\nb", "x^2^ ==y== :)"),
    *("1/2/2026", "on 2026/1/2", "24/7", "9/11", "1/10", "11/2", "1/2.5", "v1/2", "a/1/2", "€1/2", "1/2%", "-1/2"),
    *("snake_case __init__ self.__dict__.x _private f(*args, **kwargs) a_b_c", "__main__", "*.py and *.js"),
    *("https://a.b/_c_/d_e_f?x=*y", "me_x_@a_b.com *", "C:\\temp", "it`s John`s", "´`", "arr[0](x)"),
    *("[1] and [2]", "a][b", "[sic](see below)", "#1 and C# #tag", "a | b", "— Hello", "don't_", "© ® ™ ‼ 5 ‰"),
    *("  indented\n\n\nlines ", "ZWJ: क्‍ष ZWNJ: می‌خواهم"),
]
FRACTIONS = [
    ("Add 1/2 cup of milk.", "en", "Add one half cup of milk."),
    ("3/4, ½ (⅔) 1⁄4", "en", "three quarters, one half (two thirds) one quarter"),
    ("1 1/2 cups, 1½ l, 2-3/4 inches", "en", "1 and a half cups, 1 and a half l, 2 and three quarters inches"),
    ("- **1/2** cup", "en", "one half cup"),
    ("1 1/2 Tassen, 2 3/4 und 1/3", "de", "1 einhalb Tassen, 2 drei Viertel und ein Drittel"),
    ("12 ⅛", "en", "12 and one eighth"),
    ("1/2 tasse", "fr", "un demi tasse"),
    ("加1/2杯牛奶", "zh", "加二分之一杯牛奶"),
    ("1 1/2 bardak", "tr", "1 buçuk bardak"),
    ("1/2 cup", "xx", "1/2 cup"),
    ("1/7 and 2/4", "en", "1/7 and 2/4"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "spoken"), SILENT)
def test_marks_and_emoji_are_silent_in_every_language(text: str, spoken: str) -> None:
    assert {language: speakable(text, language) for language in LANGUAGES} == dict.fromkeys(LANGUAGES, spoken)


@pytest.mark.parametrize("text", SAYING)
def test_signs_that_mean_something_stay(text: str) -> None:
    assert {language: speakable(text, language) for language in LANGUAGES} == dict.fromkeys(LANGUAGES, text)


@pytest.mark.parametrize(("text", "language", "spoken"), FRACTIONS)
def test_common_fractions_are_words(text: str, language: str, spoken: str) -> None:
    assert speakable(text, language) == spoken


def test_every_language_that_is_spoken_has_words_for_fractions() -> None:
    assert sorted(_WORDS) == LANGUAGES
    for language, (_, half, row) in _WORDS.items():
        assert len({*row.split(", ")}) == len(_PARTS), language
        assert not any(map(str.isdigit, half + row)), language
        assert speakable(" ".join(_PARTS), language) == row.replace(", ", " ")


def test_tags_of_engines_stay() -> None:
    for form in ("{}a", "a {} b", "**{}a**", "- {} a", "[{}](b)", "{}(b)"):
        assert not [tag for tag in TAGS if tag not in speakable(form.format(tag), "en", TAGS)], form


def test_plain_prose_is_unchanged_in_all_languages() -> None:
    for language, texts in (*SENTENCES.items(), *language_samples.SENTENCES.items()):
        for text in (*texts, "\n\n".join(texts)):
            assert speakable(text, language) == text


def test_a_transcript_may_spell_a_fraction_in_any_way() -> None:
    for transcript in ("Add one half cup.", "Add 1/2 cup.", "Add ½ cup.", "add half cup"):
        assert compare(speakable("Add **1/2** cup.", "en"), transcript, "en").first is None
    assert compare("Add one half cup.", "Add 1/4 cup.", "en").first is not None


MARKED = st.lists(
    st.sampled_from(
        [*"ab \n*_~`#>-+|[]()!\\:.1/2½é字🎉", "**", "__", "```", "](", "](x)", "- ", "> ", "# ", "|-|", "1️⃣", "👍🏽"]
    ),
    max_size=14,
).map("".join)


@given(MARKED, st.sampled_from(LANGUAGES))
@example("[a]**(b)**", "en")
@example("[*](x)a*", "en")
@example("**# a**", "en")
@settings(max_examples=1500, deadline=None)
def test_a_text_is_done_after_one_step(text: str, language: str) -> None:
    spoken = speakable(text, language)
    assert speakable(spoken, language) == spoken


@given(MARKED)
@settings(max_examples=1500, deadline=None)
def test_no_word_is_invented(text: str) -> None:
    """Without fractions, letters and digits come in the order of the text."""
    letters = iter(text)
    assert all(letter in letters for letter in speakable(text, "xx") if letter.isalnum())


@given(st.text(max_size=60))
@settings(max_examples=500, deadline=None)
def test_any_text_is_taken(text: str) -> None:
    spoken = speakable(text, "de", TAGS)
    assert speakable(spoken, "de", TAGS) == spoken


PIECES = ["*a ", "_a", "[", "[a](", "](", "~~a", "`a ``b ", "#", " ", "w", "a@", "|-", "\\*", "1/2 ", "🎉 - "]


@pytest.mark.parametrize(
    ("head", "piece", "tail"),
    [
        ("é", "_*", ""),
        *(("", piece, "") for piece in PIECES),
        *(("a|b\n" + head, " ", "`x") for head in ("", "---", "```", "|-|")),
    ],
)
def test_time_grows_with_the_text(head: str, piece: str, tail: str) -> None:
    """Four times the text takes no more than eight times as long, or next to nothing."""

    def took_s(length: int) -> float:
        text = head + (piece * length)[:length] + tail
        started_s = time.process_time()
        speakable(text, "en", TAGS)
        return time.process_time() - started_s

    took_s(100)
    assert min(took_s(16_000) for _ in range(3)) < max(8 * min(took_s(4_000) for _ in range(3)), 0.02)
