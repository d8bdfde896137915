"""Texts that were written for the eye: marks and emoji are silent, fractions are words, all else stays.

And whether a transcript says what a text says.
"""

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import configs
from benchmarks.quality.spoken import SENTENCES
from contract.speech.tags import tags_of
from models.kokoro.phonemes import runs
from models.kokoro.speaker import ESPEAK_NAMES
from models.pico import VOICES, readable
from tests.text import language_samples
from text.speakable import _MONEY, _PARTS, _TABLES, _WORDS, speakable
from text.spoken import LETTERS, compare, doubts, spelled

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
    ("~~~ Chapter One ~~~\nIt was night.", "Chapter One\nIt was night."),
    ("~~~ sh\na\n> ~~~\n``` Wichtig: heute\n```x", "a\n\nWichtig: heute\nx"),
    ("Use `ls` or ``a`b``.", "Use ls or a`b."),
    # links
    ('See [the *page*](http://a.b/c_d "t") and [x](<a b>).', "See the page and x."),
    ("![A cat](cat.png) and [![dog](d)](http://x.y/(z))", "A cat and dog"),
    ("At <https://a.b/_c_> or <me@a.b>", "At https://a.b/_c_ or me@a.b"),
    (r"1\. a \*star\* and b \> 4", "1. a star and b > 4"),
    # emoji
    ("Great job 🎉😊 everyone!", "Great job everyone!"),
    ('Hi 🎉! **🎉 Yes** (🎉 no) "👍" a🎉b', 'Hi! Yes (no) "" a b'),
    ("👨‍👩‍👧‍👦 a 👍🏽 b 🇩🇪🇫🇷 c 1️⃣ d #️⃣ e 🏴󠁧󠁢󠁥󠁮󠁧󠁿 f ❤️ g ❤ h ☀︎ i", "a b c 1 d # e f g h i"),
    ("🎉 - milk\n🎉\n- eggs 🥚", "milk\n\neggs"),
    ("🎉🎉", ""),
    ("1️⃣ 2️⃣", "1 2"),
    ("Gib 1️⃣2⃣3️⃣4️⃣ ein.", "Gib 1234 ein."),
    ("# 🎉\n**\n![](a.png)", "**"),
]
SAYING = [
    *("$5*2", "2*3 and 4*5", "$5*2, 3*4.", "5€*2 und 3€*4", "(2*3)*4*(5)", "5 * 3 * 2", "2**3**4", "x**y and z**w"),
    *("5 €* und 7 €*.", "Only 5 €*.\n\n* while stocks last", "Lehrer*innen und Bürger*innenmeister*innen", "jede*r"),
    *("90 km/h", "Tom & Jerry", "50 % + 3 = ?", "½kg", "a\r\nb", "x^2^ ==y== :)"),
    *("1/2/2026", "on 2026/1/2", "24/7", "9/11", "1/10", "11/2", "1/2.5", "v1/2", "a/1/2", "€1/2", "1/2%"),
    *("snake_case __init__ self.__dict__.x _private f(*args, **kwargs) a_b_c", "__main__", "*.py and *.js"),
    *("https://a.b/_c_/d_e_f?x=*y", "me_x_@a_b.com *", "C:\\temp", "it`s John`s", "´`", "arr[0](x)"),
    *("[1] and [2]", "a][b", "[sic](see below)", "#1 and C# #tag", "5€-10€", "a | b", "— Hello", "don't_", "© ® ™ ‼"),
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
    # signs of quantities
    ("5 µg, 2 μL, 3 µm², 1 μF", "de", "5 Mikrogramm, 2 Mikroliter, 3 Mikrometer hoch zwei, 1 Mikro F"),
    ("10² m³ (10⁻³) x¹²", "en", "10 squared m cubed (10 to the power of minus 3) x to the power of 12"),
    ("-5 °C, −5, (-5) and 5 − 3: -1/2", "en", "minus 5 °C, minus 5, (minus 5) and 5 minus 3: minus one half"),
    ("-5 度, 5 − 3", "zh", "负 5 度, 5 减 3"),
    ("3×4, 8÷2, ±5, 5 ‰", "en", "3 times 4, 8 divided by 2, plus or minus 5, 5 per mille"),
    ("≥ 18, ≤5 ≈ 3", "de", "mindestens 18, höchstens 5 etwa 3"),
    ("3 < 4 > 2 >= 1", "en", "3 less than 4 greater than 2 at least 1"),
    # signs of currencies
    ("£5.20, -£5, 5£ (5 £) £1.5 million", "en", "5.20 pounds, minus 5 pounds, 5 pounds (5 pounds) 1.5 million pounds"),
    ("£5-£10, £5m. ￥5 £1/2, 50¢", "en", "5 pounds-10 pounds, 5m pounds. 5 yen pounds one half, 50 cents"),
    *((text, "en", text) for text in ("0800-12 (0)-12 2026-11-28", "ISO-8 a -b", "https://a.b/?c=-5", "word¹ 1984¹")),
    ("μικρός -5", "xx", "μικρός -5"),
]  # fmt: skip


def test_marks_and_emoji_are_silent_in_every_language_signs_that_mean_something_stay_and_fractions_are_words() -> None:
    texts = [*SILENT, *zip(SAYING, SAYING, strict=True)]
    orders = [*FRACTIONS, *((text, language, spoken) for text, spoken in texts for language in LANGUAGES)]
    assert [speakable(text, language) for text, language, _ in orders] == [spoken for *_, spoken in orders]


def test_every_language_that_is_spoken_has_words_for_fractions() -> None:
    assert sorted(_WORDS) == sorted(_TABLES["signs"]) == LANGUAGES
    for language, (_, half, row) in _WORDS.items():
        assert len({*row.split(", ")}) == len(_PARTS), language
        assert not any(map(str.isdigit, half + row)), language
        assert speakable(" ".join(_PARTS), language) == row.replace(", ", " ")


def test_no_engine_says_a_quantity_without_its_sign() -> None:
    signs = {"5 µg": "5 g", "10²": "10", "−5": "5", "-5": "5", "3×4": "3 4", "≥ 18": "18"}
    signs |= {text: "5" for sign in f"{_MONEY}￥" for text in (f"5 {sign}", f"{sign}5")}
    for text, bare in signs.items():
        for language, voice in ESPEAK_NAMES.items():
            spoken, order = speakable(text, language), (text, language)
            assert runs(spoken, voice) != runs(bare, voice), order
            assert language not in VOICES or readable(spoken).split() not in (readable(bare).split(), ["102"]), order
        assert {text, bare}.isdisjoint(speakable(text, language) for language in LANGUAGES), text


def test_tags_of_engines_stay() -> None:
    for form in ("{}a", "a {} b", "**{}a**", "- {} a", "[{}](b)", "{}(b)"):
        assert not [tag for tag in TAGS if tag not in speakable(form.format(tag), "en", TAGS)], form


def test_plain_prose_is_unchanged_in_all_languages() -> None:
    for language, texts in (*SENTENCES.items(), *language_samples.SENTENCES.items()):
        for text in (*texts, "\n\n".join(texts)):
            minus = _TABLES["signs"][language].split("; ")[0]
            plain = re.sub(r"£(\d(?:[.\d]*\d)?)", r"\1 pounds", re.sub(r"(?<!\S)-(?=\d)", f"{minus} ", text))
            assert speakable(text, language) == plain


def test_a_transcript_may_spell_a_fraction_in_any_way() -> None:
    for transcript in ("Add one half cup.", "Add 1/2 cup.", "Add ½ cup.", "add half cup"):
        assert compare(speakable("Add **1/2** cup.", "en"), transcript, "en").first is None
    assert compare("Add one half cup.", "Add 1/4 cup.", "en").first is not None


MARKED = st.lists(
    st.sampled_from("ab \n*_~`#>-+|[]()!\\:.1/2½é字🎉−²×≥µ<£¥")
    | st.sampled_from(["**", "__", "```", "](", "](x)", "- ", "> ", "# ", "|-|", "1️⃣", "👍🏽"]),
    max_size=14,
).map("".join)


@given(MARKED, st.sampled_from(LANGUAGES))
@example("[a]**(b)**", "en")
@example("[*](x)a*", "en")
@example("**# a**", "en")
@settings(max_examples=1500)
def test_a_text_is_done_after_one_step(text: str, language: str) -> None:
    spoken = speakable(text, language)
    assert speakable(spoken, language) == spoken


@given(MARKED)
@settings(max_examples=1500)
def test_no_word_is_invented(text: str) -> None:
    """Without fractions, letters and digits come in the order of the text."""
    letters = iter(text)
    assert all(letter in letters for letter in speakable(text, "xx") if letter.isalnum())


@given(st.text(max_size=60))
@settings(max_examples=500)
def test_any_text_is_taken(text: str) -> None:
    spoken = speakable(text, "de", TAGS)
    assert speakable(spoken, "de", TAGS) == spoken


PIECES = ["*a ", "_a", "[", "[a](", "](", "~~a", "`a ``b ", "#", " ", "w", "a@", "|-", "\\*", "1/2 ", "🎉 - "]
PIECES += ["-1", "1²", "~~~\n"]


def test_time_grows_with_the_text() -> None:
    """Four times the text takes no more than eight times as long, or next to nothing."""

    def took_s(length: int, head: str, piece: str, tail: str) -> float:
        text = head + (piece * length)[:length] + tail
        started_s = time.process_time()
        speakable(text, "en", TAGS)
        return time.process_time() - started_s

    parts = [("é", "_*", ""), *(("", piece, "") for piece in PIECES)]
    parts += [("a|b\n" + head, " ", "`x") for head in ("", "---", "```", "|-|")]
    for part in parts:
        took_s(100, *part)
        once_s, fourfold_s = (min(took_s(length, *part) for _ in range(3)) for length in (4_000, 16_000))
        assert fourfold_s < max(8 * once_s, 0.02), part


# Transcripts


SAME = [
    ("1.5 l, 3×4, 10², 1,00,000", "one point five litres, 3 x 4, ten squared, 100,000", "en"),
    ("Um 7.30 Uhr, am 24.12.2026, 1.234,5 g", "um 7:30 uhr, am 24. 12. 2026, 1234,5 g", "de"),
    ("1.234,50 € für 3,00 kg", "1234,5 Euro für 3 Kilo", "de"),
    ("It is 7.30, on 24.12., Python 3.11, 555.1234", "It is 7:30, on 24. 12., Python 3. 11, 5551234", "en"),
    ("It costs 1,500 €, $2.50, 20 dollars.", "It costs fifteen hundred euros, two point five dollars, $20", "en"),
    ("Room 12, please. In 1984 Dr. Miller left.", "room twelve please in nineteen 84, doctor miller left", "en"),
    ("They walk 7 km at 50 %.", "They walk seven kilometers at fifty percent.", "en"),
    ("L'hiver est là, nos neveux paient 97 €.", "L’hiver est la, nos neveux paient quatre-vingt-dix-sept euros", "fr"),
    ("duecentotrentacinque metri", "235 metri", "it"),
    ("São duzentos e trinta gramas.", "São 230 g", "pt"),
    ("It fell to -12 degrees.", "it fell to minus twelve degrees", "en"),
    ("Veintitrés personas, baja a -3 grados.", "23 personas, baja a menos tres grados", "es"),
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
    ("Take 1.5 ml at night.", "Take 15 ml at night.", "en", ("1.5", "15")),
    ("1,5 l", "15 l", "fr", ("1.5", "15")),
    ("Take 2.50 ml at night.", "Take 250 ml at night.", "en", ("2.5", "250")),
    ("Das kostet 2,50 €.", "Das kostet 250 Euro.", "de", ("2.5", "250")),
    ("10²", "102", "en", ("10 squared", "102")),
    ("platform 9 is closed", "platform is closed", "en", ("9", "")),
    ("97 chairs", "94 chairs", "en", ("97", "94")),
    ("we come home", "we come home and we come home", "en", ("", "and we come home")),
    ("good morning", "", "en", ("good morning", "")),
    ("the train leaves", "el tren sale", "en", ("the train leaves", "el tren sale")),
]


def test_only_what_was_not_said_counts() -> None:
    """Neither another spelling of the same words, nor what may sound the same."""
    for text, transcript, language in SAME:
        assert spelled(text, language) == spelled(transcript, language)
        assert compare(text, transcript, language).word_error_rate == 0, text
    for row in SPELLED_OTHERWISE:
        result = compare(*row)
        assert (result.first, result.word_error_rate > 0, result.longest > 0) == (None, True, True), row
    assert [compare(*row).first for *row, _ in DIFFERENT] == [first for *_, first in DIFFERENT]


def test_a_word_that_is_left_out_counts_from_its_length_on() -> None:
    for letters, is_counted in ((LETTERS - 1, False), (LETTERS, True), (LETTERS + 1, True)):
        word = "flower"[:letters]
        assert (compare(f"that {word} there", "that there", "en").first is not None) is is_counted


def test_a_word_for_another_is_a_doubt_and_none_is_a_fault() -> None:
    doubtful = {
        "we saw the big black horse near the old mill": False,
        "we saw the big black tiger near the old mill": True,
        "we saw the big elephants near the old mill": True,
        "we saw the big near the old mill": False,
        "we saw the big black horse yesterday near the old mill": False,
        "we saw the big black tiger near the old": False,
        # Five words in a row, and six.
        "we saw every umbrella beside elephants quickly the old mill": True,
        "we saw every umbrella beside elephants quickly walking old mill": False,
    }
    text = "We saw the big black horse near the old mill."
    assert {transcript: compare(text, transcript, "en").is_doubtful for transcript in doubtful} == doubtful


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


LEAVES, DRIVES, BOARD = "The train leaves at noon.", "Ferreira drives it today.", "Nobody else may board."
DOUBTS: list[tuple[list[str], list[tuple[str, int, int]]]] = [
    ([LEAVES, DRIVES, BOARD], []),
    # One sentence in one piece, one in two, and two in one.
    ([LEAVES, "Pereira walks it.", BOARD], [(DRIVES, 1, 2)]),
    ([LEAVES, "Ferreira drives", "the bus.", BOARD], [(DRIVES, 1, 3)]),
    ([f"{LEAVES} Ferreira walks to work.", BOARD], [(f"{LEAVES} {DRIVES}", 0, 1)]),
    # A word that is missing at the joint of two sentences, and a sentence that is missing.
    (["The train leaves at", "drives it today.", BOARD], [(f"{LEAVES} {DRIVES}", 0, 2)]),
    ([LEAVES, BOARD], [(f"{DRIVES} {BOARD}", 1, 2)]),
    (["", "completely different things"], [(f"{LEAVES} {DRIVES} {BOARD}", 0, 2)]),
    ([], [(f"{LEAVES} {DRIVES} {BOARD}", 0, 0)]),
]


def test_what_differs_is_heard_again_by_sentences_and_pieces() -> None:
    for pieces, expected in DOUBTS:
        assert doubts(f"{LEAVES} {DRIVES} {BOARD}", pieces, "en") == expected, pieces


@given(st.lists(st.text("ab c.1", max_size=12), max_size=6), st.text("ab c.1 \n", max_size=60))
def test_doubts_are_in_order_and_never_overlap(pieces: list[str], text: str) -> None:
    places = [place for doubt in doubts(text, pieces, "en") for place in (doubt.first, doubt.end)]
    assert places == sorted(places)
    assert all(0 <= place <= len(pieces) for place in places)
