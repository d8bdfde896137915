"""Structure by rules: what is broken where, and that no text whatever loses or gains a word."""

import time

from hypothesis import example, given, settings
from hypothesis import strategies as st

from contract.transcription.engine import Segment
from text.formatting.rules import structured
from text.formatting.verdict import judge

ATOMS = (
    "Erstens zweitens drittens und First second Punkt eins 1 2 2. 1. 3,5 -5 - – : . , ! ? … „ “ ( ) Hallo Peter Dear "
    "Smith Mit freundlichen Grüßen Viele Grüße Best regards Max No. no nicht can't E-Mail Dr. * # % € a b 你 好 。 "
    "ก ข \u200b \u202e \u0301 \u00a0 \n \t \x1c \x85 \u2028 1.000 12:30 ½ ² www.a.de aa.bb --- ß İ ſ"
)
SPOKEN = st.lists(st.sampled_from(ATOMS.split(" ")), max_size=30).flatmap(
    lambda words: st.sampled_from([" ", "", "  ", "\n"]).map(lambda space: space.join(words))
)
PAUSES_S = st.lists(st.sampled_from([0.0, 1.0, 3.0]), max_size=30)


def spoken(*passages: tuple[str, float]) -> tuple[str, list[Segment]]:
    segments, now = [], 0.0
    for text, silence_s in passages:
        segments.append(Segment(text, now + silence_s, now + silence_s + 1))
        now += silence_s + 1
    return " ".join(text for text, _ in passages), segments


def lined(text: str) -> list[str]:
    return structured(text, []).split("\n")


@settings(max_examples=400)
@given(st.one_of(SPOKEN, st.text(max_size=80)), PAUSES_S)
@example("Foo 1. Erstens. Bar 1. Zweitens", [3.0, 3.0, 3.0])
@example("no. First a. Second b.", [])
@example("Milch - zweitens 5 - 6", [])
@example("Erstens Erstens Erstens . No. \x85 No. 1", [0.0] * 7 + [1.0])
def test_no_text_loses_or_gains_a_word(text: str, pauses_s: list[float]) -> None:
    words = text.split(" ")
    passages = [(word, pauses_s[i] if i < len(pauses_s) else 0.0) for i, word in enumerate(words)]
    _, segments = spoken(*passages)
    verdict = judge(text, structured(text, segments))
    assert (verdict.verdict, verdict.coverage, verdict.reason) == ("ok", 1.0, None)


@settings(max_examples=100)
@given(st.text())
def test_a_text_says_what_it_says(text: str) -> None:
    assert judge(text, text).verdict == "ok"


def test_letters() -> None:
    german = (
        "Sehr geehrte Frau Müller, wir haben drei Punkte. Erstens, die Rechnung ist offen. Zweitens, der Termin ist am "
        "12. Mai. Drittens, bitte rufen Sie an. Das war alles. Mit freundlichen Grüßen Max Muster"
    )
    assert structured(german, []) == (
        "Sehr geehrte Frau Müller,\n\nwir haben drei Punkte.\n\n1. Erstens, die Rechnung ist offen.\n"
        "2. Zweitens, der Termin ist am 12. Mai.\n3. Drittens, bitte rufen Sie an.\n\nDas war alles.\n\n"
        "Mit freundlichen Grüßen\nMax Muster"
    )
    english = "Hi John, two things. First, we need milk. Second, call me. That is all. Best regards, Jane"
    assert lined("Thanks. Best regards, Jane") == ["Thanks.", "", "Best regards,", "Jane"]
    assert structured(english, []) == (
        "Hi John,\n\ntwo things.\n\n1. First, we need milk.\n2. Second, call me.\n\nThat is all.\n\nBest regards,\nJane"
    )


LISTS = [
    "Premièrement, du lait. Deuxièmement, des œufs.",
    "Primero, la leche. Segundo, los huevos.",
    "Primo, il latte. Secondo, le uova.",
    "Primeiro, o leite. Segundo, os ovos.",
    "Ten eerste melk. Ten tweede eieren.",
    "Point one: milk. Point two: eggs.",
    "Punkt 1: Milch. Punkt 2: Eier.",
    "Als Erstes Milch. Als Zweites Eier.",
    "Firstly, milk, secondly, eggs.",
    "First of all, milk. Secondly, eggs.",
]


def test_ordinals_make_a_list() -> None:
    assert [text for text in LISTS if [line[:3] for line in lined(text)] != ["1. ", "2. "]] == []


def test_items_inside_a_sentence_make_a_list_from_three_on() -> None:
    assert lined("Wir brauchen erstens Milch und zweitens Eier.") == ["Wir brauchen erstens Milch und zweitens Eier."]
    three = structured("Wir brauchen erstens Milch, zweitens Eier und drittens Brot.", [])
    assert three == "Wir brauchen\n\n1. erstens Milch,\n2. zweitens Eier\n3. und drittens Brot."


PLAIN = [
    "The first time I saw it I was five. The second time I was ten.",
    "First we went home. It was late.",
    "Second, this is wrong. Third, this too.",
    "Wait a second. I was first. He was second.",
    "Der erste Mai ist ein Feiertag. Der zweite nicht.",
    "Liebe ist schön, wenn sie hält.",
    "Hallo, ich wollte nur kurz fragen.",
    "Hallo ich bin Peter, wie geht es dir?",
    "Viele Grüße an deine Frau.",
    "Am 12. Mai kam Dr. Meier um 3.",
]


def test_what_is_no_list_and_no_letter_stays_one_line() -> None:
    assert {text: lined(text) for text in PLAIN} == {text: [text] for text in PLAIN}


def test_a_second_list_begins_at_one_again_and_markers_that_were_heard_are_not_doubled() -> None:
    lines = lined("Erstens Milch. Zweitens Eier. Und nun. Erstens Brot. Zweitens Butter.")
    assert [line[:3] for line in lines if line] == ["1. ", "2. ", "Und", "1. ", "2. "]
    assert "1. 1." not in structured("1. Erstens Milch. 2. Zweitens Eier.", [])


def test_a_long_pause_between_sentences_or_a_seventh_sentence_begins_a_paragraph() -> None:
    for silence_s, breaks in ((1.9, 0), (2.0, 1), (2.1, 1)):
        text, segments = spoken(("Wir gehen heute nach Hause.", 0), ("Es ist spät.", silence_s))
        assert structured(text, segments).count("\n\n") == breaks, silence_s
    text, segments = spoken(("Wir gehen heute noch", 0), ("nach Hause.", 9.0))
    assert structured(text, segments) == text
    for sentences, breaks in ((5, 0), (6, 0), (7, 1)):
        for sentence in ("Wir gehen nach Hause.", "Ja."):
            assert structured(" ".join([sentence] * sentences), []).count("\n\n") == breaks, (sentence, sentences)


def test_a_long_speech_is_structured_in_linear_time() -> None:
    def seconds(sentences: str, times: int) -> float:
        text, segments = spoken(*[(sentences, 1.0)] * times)
        began = time.thread_time()
        structured(text, segments)
        return time.thread_time() - began

    for sentences in ("Erstens kam er nach Hause.", "Erstens Milch. Zweitens Eier.", "Hallo Peter und"):
        once, tenfold = (min(seconds(sentences, times) for _ in range(3)) for times in (200, 2000))
        assert tenfold < 40 * once, sentences
