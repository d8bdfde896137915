"""The verdict over a formatted transcript: what is structure, what is a word, and what nobody may slip through."""

import time
import unicodedata

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from text.formatting.tokens import tokenize
from text.formatting.verdict import MOST_TOKENS, judge

GERMAN = (
    "Sehr geehrte Frau Müller, wir haben zwei Punkte. Erstens ist die Rechnung über 350,50 Euro vom 12. Mai noch nicht "
    "bezahlt. Zweitens kommt der Techniker am Montag um 14:30 Uhr zu Ihnen ins Büro, und er bringt das neue Gerät mit. "
    "Bitte sagen Sie uns Bescheid, falls das nicht geht. Mit freundlichen Grüßen Max Muster"
)
ENGLISH = (
    "Dear Ms Smith, there are two things. First, the invoice for 350.50 euros of May 12 has not been paid yet. Second, "
    "the engineer comes to your office on Monday at 2:30 and brings the new device along. Please let us know if that "
    "doesn't work for you. Best regards, Jane Miller"
)
TEXTS = GERMAN, ENGLISH
PLAIN = (
    "Der Hund lief gestern mit seinem Freund durch den großen Park und freute sich sehr über das schöne Wetter dort."
)


def verdict(transcript: str, formatted: str) -> str:
    """`ok`, `auffaellig`, or the reason why the formatted text was not taken."""
    found = judge(transcript, formatted)
    assert found.text == (transcript if found.reason else formatted)
    assert 0 <= found.coverage <= 1
    return found.reason or found.verdict


def changed(transcript: str, old: str, new: str) -> str:
    assert transcript.count(old) == 1
    return verdict(transcript, transcript.replace(old, new))


RESTRUCTURED = {
    GERMAN: "Sehr geehrte Frau Müller,\n\nwir haben zwei Punkte:\n\n1. Erstens: Ist die Rechnung über 350,50 Euro vom "
    "12. Mai noch nicht bezahlt?\n2. Zweitens kommt der Techniker am Montag um 14:30 Uhr zu Ihnen ins Büro – und er "
    "bringt das neue Gerät mit.\n\nBitte sagen Sie uns Bescheid, falls das nicht geht!\n\nMit freundlichen Grüßen\n"
    "Max Muster",
    ENGLISH: "Dear Ms Smith,\n\nThere are two things:\n\n1. First, the invoice for 350.50 euros of May 12 has not been "
    "paid yet.\n2. Second, the engineer comes to your office on Monday at 2:30, and brings the new device along.\n\n"
    "Please let us know if that doesn’t work for you.\n\nBest regards,\nJane Miller",
}


def test_a_pure_restructuring_is_ok() -> None:
    for text, formatted in RESTRUCTURED.items():
        found = judge(text, formatted)
        assert (found.verdict, found.coverage, found.reason, found.text) == ("ok", 1.0, None, formatted)


CHANGED = [
    (GERMAN, "12. Mai", "13. Mai"),
    (GERMAN, "350,50", "350,60"),
    (GERMAN, "14:30", "4:30"),
    (ENGLISH, "May 12", "May 13"),
    (ENGLISH, "350.50", "35050"),
    (GERMAN, "kommt der Techniker", "kommt der Techniker nicht"),
    (GERMAN, "noch nicht bezahlt", "noch bezahlt"),
    (GERMAN, "das neue Gerät", "kein neues Gerät"),
    (ENGLISH, "the engineer comes", "the engineer never comes"),
    (ENGLISH, "has not been", "has been"),
    (ENGLISH, "doesn't work", "does work"),
]
RENAMED = [(GERMAN, "Müller", "Meier"), (ENGLISH, "Smith", "Smythe")]


def test_a_changed_digit_a_negation_that_was_added_or_lost_and_a_summary_are_refused_and_another_name_is_told() -> None:
    expected = dict.fromkeys(CHANGED, "wording_changed") | dict.fromkeys(RENAMED, "auffaellig")
    assert {change: changed(*change) for change in expected} == expected
    for text, summary in (
        (GERMAN, "Rechnung offen, Techniker kommt am Montag um 14:30 Uhr. Max Muster"),
        (ENGLISH, "The invoice is unpaid, and the engineer comes on Monday at 2:30."),
    ):
        judged = judge(text, summary)
        assert (judged.text, judged.verdict, judged.reason) == (text, "auffaellig", "wording_changed")
        assert judged.coverage < 0.5


CHANGES = {
    "emptied": lambda text: "",
    "doubled": lambda text: text + " " + text,
    "preface": lambda text: "Here is the formatted text: " + text,
    "one word before": lambda text: "Gerne! " + text,
    "one word behind": lambda text: text + " Fertig.",
    "reversed": lambda text: " ".join(reversed(text.split())),
    "other order": lambda text: ". ".join(reversed(text.split(". "))),
    "other language": lambda text: "Le texte est dans une autre langue, il parle de tout autre chose que le premier.",
    "bold": lambda text: f"**{text}**",
    "heading": lambda text: "# " + text,
    "fence": lambda text: f"```\n{text}\n```",
    "html": lambda text: f"<p>{text}</p>",
    "link": lambda text: text.replace("Monday", "[Monday](x)").replace("Montag", "[Montag](x)"),
    "rule": lambda text: text.replace(". ", ".\n\n---\n\n"),
    "zero width": lambda text: text.replace("neue", "ne\u200bue").replace("new ", "ne\u200bw "),
    "bidi": lambda text: "\u202e" + text,
    "bom": lambda text: "\ufeff" + text,
    "soft hyphen": lambda text: text.replace("Ger", "Ger\u00ad").replace("dev", "dev\u00ad"),
    "homoglyph": lambda text: text.replace("Müller", "M\u00fcll\u0435r").replace("Smith", "Sm\u0456th"),
    "strike": lambda text: text.replace("neue", "n\u0335eue").replace("new ", "n\u0335ew "),
    "mathematical": lambda text: text.replace("Mon", "\U0001d40c\U0001d428n"),
    "selector": lambda text: text.replace("ü", "\ufe0fü").replace("new ", "new\ufe0f "),
    "month": lambda text: text.replace("Mai", "Juni").replace("May", "June"),
    "currency": lambda text: text.replace("Euro", "Dollar").replace("euros", "dollars"),
    "emoji": lambda text: text.replace("Punkte", "🙂 Punkte").replace("things", "🙂 things"),
}


def test_what_is_no_structure_is_refused() -> None:
    found = {(name, text[:4]): verdict(text, change(text)) for name, change in CHANGES.items() for text in TEXTS}
    assert found == dict.fromkeys(found, "wording_changed")
    assert not [name for name, change in CHANGES.items() for text in TEXTS if change(text) == text]


LOST = [
    ("Es kostet 3,5 Euro.", "Es kostet 35 Euro."),
    ("Es kostet 3,5 Euro.", "Es kostet 3, 5 Euro."),
    ("Es kostet 3.5 Euro.", "Es kostet 3,5 Euro."),
    ("Es sind 1.000 Leute.", "Es sind 1 000 Leute."),
    ("Es sind 1 000 Leute.", "Es sind 1000 Leute."),
    ("Es sind 12 5 Leute.", "Es sind 125 Leute."),
    ("Es sind -5 Grad.", "Es sind 5 Grad."),
    ("Es sind 5 Grad.", "Es sind -5 Grad."),
    ("Es sind – 5 Grad.", "Es sind 5 Grad."),
    ("Es sind \u22125 Grad.", "Es sind 5 Grad."),
    ("Es sind minus fünf Grad.", "Es sind fünf Grad."),
    ("Es sind 5 % mehr.", "Es sind 5 mehr."),
    ("Es sind 5 % mehr.", "Es sind 5 Prozent mehr."),
    ("Es kostet 5 €.", "Es kostet 5 $."),
    ("Es kostet 5 € mehr.", "Es kostet 5 mehr."),
    ("Das sind 10² Meter.", "Das sind 102 Meter."),
    ("Das ist ½ Liter.", "Das ist 12 Liter."),
    ("Um 10:30 Uhr.", "Um 1030 Uhr."),
    ("Das Spiel endet 2 : 1 heute.", "Das Spiel endet 2, 1 heute."),
    ("Das Spiel endet 2 • 1 heute.", "Das Spiel endet 2 1 heute."),
    ("Das ist 3 · 5 heute.", "Das ist 3 5 heute."),
    ("Das ist .5 Liter.", "Das ist 5 Liter."),
    ("Am 3-5 Mai.", "Am 35 Mai."),
    ("Am 3/5 Mai.", "Am 3 5 Mai."),
    ("2 Äpfel kaufen wir.", "2. Äpfel kaufen wir."),
    ("Wir kaufen ein. 2 Äpfel bitte.", "Wir kaufen ein.\n\n2. Äpfel bitte."),
    ("Wir kaufen ein. 2 Äpfel bitte.", "Wir kaufen ein.\n2) Äpfel bitte."),
    ("Milch und Eier kaufen wir heute.", "1. Milch und\n2. Eier kaufen wir heute."),
    ("Wir treffen uns am Mai in Berlin.", "Wir treffen uns am\n12. Mai in Berlin."),
    ("Ich nehme fünf Tabletten.", "Ich nehme sechs Tabletten."),
    ("Ich nehme fünf Tabletten.", "Ich nehme 5 Tabletten."),
    ("Ich nehme einundzwanzig Tabletten.", "Ich nehme zweiundzwanzig Tabletten."),
    ("Ich nehme morgens 5 mg davon.", "Ich nehme morgens 5 g davon."),
    ("Der Preis ist heute um 5 gestiegen.", "Der Preis ist heute auf 5 gestiegen."),
    ("Er kam als 1st an, und wir gingen.", "Er kam als 1 an, und wir gingen."),
    ("Das Zimmer No. 5 ist frei.", "Das Zimmer no 5 ist frei."),
    ("Kapitel IV lesen wir heute noch.", "Kapitel VI lesen wir heute noch."),
    ("Schreiben Sie an anna@firma.de bitte.", "Schreiben Sie an anna firma.de bitte."),
    ("Die Seite ist firma.de und heißt so.", "Die Seite ist firma. De und heißt so."),
    ("Der Wert von a+b ist groß genug.", "Der Wert von a b ist groß genug."),
    ("They cant do it today at all.", "They can't do it today at all."),
    ("They can't do it today at all.", "They can do it today at all."),
    ("There is no table in this room today.", "There is notable in this room today."),
    ("That is notable in this room today.", "That is not-able in this room today."),
    ("Das ist heute leider möglich geworden.", "Das ist heute leider unmöglich geworden."),
    ("Das ist heute wohl sinnvoll geworden.", "Das ist heute wohl sinnlos geworden nie."),
    ("That was a fearless thing to do today.", "That was a fear thing to do today."),
    ("Ich komme heute mit Peter dorthin.", "Ich komme heute ohne Peter dorthin."),
    ("Ja.", "Nein."),
    ("Hallo.", "Tschüss."),
    ("", "Vielen Dank."),
    ("Danke.", ""),
    ("我不去那里看他。", "我去那里看他。"),
    ("三个人来了这里。", "四个人来了这里。"),
    ("Он не придёт завтра домой к нам.", "Он придёт завтра домой к нам."),
    ("Je ne viens pas demain chez toi.", "Je viens demain chez toi."),
    ("No quiero ir mañana a la escuela.", "Quiero ir mañana a la escuela."),
    ("Non voglio andare domani a scuola.", "Voglio andare domani a scuola."),
    ("Não quero ir amanhã para a escola.", "Quero ir amanhã para a escola."),
    ("Ik kom morgen niet naar jullie huis.", "Ik kom morgen naar jullie huis."),
    ("Erstens Milch, zweitens Eier", "1. Erstens Milch\n3. Zweitens Eier"),
    ("Erstens Milch, zweitens Eier", "2. Milch\n1. Eier"),
    ("Erstens Milch, zweitens Eier", "Milch\nEier"),
    ("First aid is important", "1. aid is important"),
    ("Ich war Zweiter. Zweitens Eier", "Ich war Zweiter.\n2. Eier"),
    ("1. Erstens Milch. 2. Zweitens Eier.", "Erstens Milch. Zweitens Eier."),
    ("Am 1. Erstens Milch, zweitens Eier.", "Am. Erstens Milch, zweitens Eier."),
    ("Am. Erstens Milch, zweitens Eier.", "Am 1. Erstens Milch, zweitens Eier."),
]


KEPT = [
    ("das ist gut und das ist schön", "Das ist gut.\n\nUnd das ist schön!"),
    ("Wie geht's dir?", "Wie geht’s dir?"),
    ("Das war z.B. gut", "Das war z. B. gut."),
    ("Er sagte komm her", 'Er sagte: "Komm her!"'),
    ("Schicken Sie eine E-Mail", "Schicken Sie eine Email."),
    ("Schicken Sie eine Email", "Schicken Sie eine E-Mail."),
    ("Schicken Sie eine E-Mail", "Schicken Sie eine E Mail."),
    ("Milch, Eier, Brot", "- Milch\n- Eier\n- Brot"),
    ("Milch, Eier, Brot", "• Milch\n• Eier\n• Brot"),
    ("Am 2 Mai kommt er", "Am 2. Mai kommt er."),
    ("1. Milch 2. Eier", "1. Milch\n2. Eier"),
    ("Erstens Milch, zweitens Eier", "1. Erstens Milch\n2. Zweitens Eier"),
    ("Erstens Milch, zweitens Eier", "1. Milch\n2. Eier"),
    ("Erstens Milch, zweitens Eier", "1) Erstens Milch\n2) Eier"),
    ("Also. Erstens Milch, zweitens Eier und drittens Brot.", "Also.\n1. Milch\n2. Eier\n3. und drittens Brot."),
    ("Punkt eins Milch, Punkt zwei Eier", "1. Punkt eins: Milch\n2. Punkt zwei: Eier"),
    ("Es sind -5 bis 3-5 Grad", "Es sind –5 bis 3–5 Grad."),
    ("M\u00fcller", "Mu\u0308ller"),
    ("你好。我走了。", "你好。\n\n我走了。"),
    ("Το τέλος. ΟΔΟΣ", "Το τέλος.\n\nΟδός".replace("ό", "ο")),
    ("می‌خواهم بروم.", "می‌خواهم\nبروم."),
    ("", ""),
    ("...", ""),
]


def test_no_figure_sign_or_negation_is_lost_or_won_while_white_space_punctuation_case_and_list_marks_may_be() -> None:
    expected = dict.fromkeys(LOST, "wording_changed") | dict.fromkeys(KEPT, "ok")
    assert {pair: verdict(*pair) for pair in expected} == expected


def test_single_words_that_differ_are_conspicuous() -> None:
    words = {"Hund": "Kater", "gestern": "gestern abend", "sehr ": "", "Park": "P\u00e4rk", "großen": "grossen"}
    for old, new in (words | {"Wetter": "Wet ter"}).items():
        formatted, count = PLAIN.replace(old, new), 2 if old == "Wetter" else 1
        # Two words are more than 3 % of 20, but not of 80.
        found = judge(f"{PLAIN} {PLAIN} {PLAIN} {PLAIN}", f"{formatted} {PLAIN} {PLAIN} {PLAIN}")
        assert (found.verdict, found.reason) == ("auffaellig", None), old
        assert found.coverage == pytest.approx(1 - count / 80), old


def test_three_percent_and_two_words_in_a_row_may_differ() -> None:
    for differing, outcome in ((2, "auffaellig"), (3, "auffaellig"), (4, "wording_changed")):
        words = ["laufen"] * 100
        for index in range(differing):
            words[10 + 20 * index] = "gehen"
        assert verdict(" ".join(["laufen"] * 100), " ".join(words)) == outcome, differing
    for row, outcome in ((1, "auffaellig"), (2, "auffaellig"), (3, "wording_changed")):
        words = ["laufen"] * 200
        words[50 : 50 + row] = ["gehen"] * row
        assert verdict(" ".join(["laufen"] * 200), " ".join(words)) == outcome, row


SENTENCE = st.lists(
    st.text(st.characters(categories=["L", "Nd"], max_codepoint=0x24F), min_size=1, max_size=8)
    | st.sampled_from(["nicht", "3,5", "E-Mail", "Erstens", "zweitens", "2.", "und", "-5", "can't", "no", "你好"]),
    min_size=1,
    max_size=25,
)


@settings(max_examples=300)
@given(SENTENCE, st.text(st.characters(categories=["L"], max_codepoint=0x24F), min_size=1, max_size=6), st.data())
def test_a_word_that_was_deleted_or_replaced_is_never_ok(words: list[str], other: str, data: st.DataObject) -> None:
    text = unicodedata.normalize("NFC", " ".join(words))
    token = data.draw(st.sampled_from(tokenize(text)))
    assert verdict(text, text[: token.start] + text[token.end :]) != "ok"
    assume(other.lower() != token.text)
    assert verdict(text, f"{text[: token.start]}{other}{text[token.end :]}") != "ok"


@settings(max_examples=200)
@given(SENTENCE, st.characters(exclude_categories=["Z", "P"]), st.data())
def test_no_character_slips_in(words: list[str], character: str, data: st.DataObject) -> None:
    assume(character not in "\t\r\n")
    text = unicodedata.normalize("NFC", " ".join(words))
    place = data.draw(st.integers(0, len(text)))
    assert verdict(text, text[:place] + character + text[place:]) != "ok"


def test_very_long_transcripts_stay_as_they_are() -> None:
    for count, reason in ((MOST_TOKENS - 1, None), (MOST_TOKENS, None), (MOST_TOKENS + 1, "transcript_too_long")):
        text = "wort " * count
        assert judge(text, text).reason == reason


def test_hostile_texts_take_no_longer_than_others_of_their_length() -> None:
    """The bound is a text of so many different words, one in forty of them changed."""

    def seconds(transcript: str, formatted: str) -> float:
        began = time.perf_counter()
        judge(transcript, formatted)
        return time.perf_counter() - began

    count = 5000
    usual = " ".join(f"wort{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)}" for i in range(count))
    other = usual.replace("worta", "ort")
    for heard, written in (
        *(("a ", "b "), ("a b ", "b a a "), ("a-", "a "), ("erstens ", "1. "), ("ein", "ein"), ("5 ", "5. ")),
        ("e\u0301\u0323", "e\u0323\u0301"),
    ):
        assert min(seconds(heard * count, written * count) for _ in range(2)) < 10 * seconds(usual, other), heard
