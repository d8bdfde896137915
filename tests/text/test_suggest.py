"""Traits from descriptions, as people write them, and from texts that mean harm."""

import json
import random
import time
from typing import Any

from configs import load
from contract.limits import AGE_YEARS, SUGGEST_CHARS
from contract.voice_design.order import DesignOrder, SuggestRequest, voice_spec
from contract.voice_design.traits import AXES
from tests.contract.bodies import read, refusal
from text.descriptions.lexicon import entries
from text.descriptions.suggest import HINTS, suggest

CATALOG = load("embedded")
TRAITS = CATALOG.traits
DESIGNER = CATALOG.voice_design["qwen3-tts"]

FIELDS = ("gender", "age_years", "language", *AXES)

WORDS = [word for word, _ in entries(TRAITS)]

NEUTRAL = {"timbre": "neutral", "character": "friendly", "tempo": "medium", "use_case": "assistant"}


def said(*fields: Any) -> dict[str, Any]:
    return {name: value for name, value in zip(FIELDS, fields, strict=True) if value is not ...}


_ = ...

GERMAN = [
    ("Eine ruhige, tiefe Männerstimme, Anfang fünfzig, für Hörbücher", "m", 52, "de", "deep", "calm", _, "audiobook"),
    ("Anfang fifty, weiblich, nicht zu tief, spricht langsam", "f", 52, "de", "neutral", _, "slow", _),
    ("Frau Mitte 40, freundlich und klar, für die Telefonansage", "f", 45, "de", "bright", "friendly", _, "telephone"),
    ("70-jährige Frau, liebevoll, erzählt Märchen, sehr langsam", "f", 70, "de", _, "warm", "very_slow", "audiobook"),
    ("Ein Mann, fast 60, auf Spanisch, rau", "m", 59, "es", "low", _, "medium", _),
    ("Nachrichtensprecherin, sachlich, Ende 30", "f", 38, "de", _, "serious", _, "news"),
    ("Nachrichtensprecher, seriös, Mittvierziger", "m", 45, "de", _, "serious", _, "news"),
    ("eine junge, fröhliche Frau für unseren Werbespot, spricht schnell", "f", 25, "de", _, "cheerful", "fast", _),
    ("junge Frau, Werbespot", "f", 25, "de", "neutral", "friendly", "medium", "advertising"),
    ("alter Mann, brummig, gemächlich", "m", 80, "de", "deep", _, "slow", _),
    ("Oma, die Gute-Nacht-Geschichten vorliest, sanft und leise", "f", 80, "de", _, "gentle", _, "audiobook"),
    ("achtundvierzigjähriger Mann mit sonorem Bass", "m", 48, "de", "deep", _, _, _),
    ("Sprecher um die 35, energiegeladen, für einen Podcast", "m", 35, "de", _, "energetic", _, "podcast"),
    ("Bahnhofsdurchsage, weiblich, mittleren Alters, deutlich, nicht zu schnell", "f", 45, "de", _, _, "medium", _),
    ("eine Dame in den Sechzigern, gebildet, etwas tiefer", "f", 65, "de", "low", _, _, _),
    ("Mann in den 30ern, hell, locker", "m", 35, "de", "bright", _, _, _),
    ("weiblich, 16 Jahre, sehr hoch", "f", 16, "de", "high", _, _, _),
    ("Er spricht bedächtig, mit sehr tiefer Stimme, ist über 60", "m", 63, "de", "deep", "calm", _, _),
    ("Sie ist Anfang 30 und erzählt ruhig", "f", 32, "de", _, "calm", _, "audiobook"),
    ("Stimme: nicht männlich, hell, 20", "f", 20, "de", "bright", _, _, _),
    ("keine Frau, eher dunkel, zwischen 40 und 50", "m", 45, "de", "low", _, _, _),
    ("weder hoch noch schrill, weiblich, dreißig", "f", 30, "de", "neutral", _, _, _),
    ("nicht nur warm, sondern auch tief; Mann, 55", "m", 55, "de", "deep", "warm", _, _),
    ("Frau, 30-40, souverän, E-Learning", "f", 35, "de", _, "confident", _, "learning"),
    ("Maennlich, fuenfzig, tief, fuer Hoerbuecher", "m", 50, "de", "deep", _, _, "audiobook"),
    ("WEIBLICH, 28, SEHR FRÖHLICH", "f", 28, "de", _, "cheerful", _, _),
    ("ne männliche Stimme so Ende zwanzig, locker, flott", "m", 28, "de", _, _, "fast", _),
    ("Sprachassistentin, hilfsbereit, ca. 35 Jahre alt", "f", 35, "de", _, "friendly", _, "assistant"),
    ("Ein Rentner, 75, erzählt gemütlich aus seinem Leben", "m", 75, "de", _, "warm", _, "audiobook"),
    ("Museumsführer, männlich, 60 bis 70, ernst", "m", 65, "de", _, "serious", _, "documentary"),
    ("Kinderstimme, weiblich, hoch und lebhaft", "f", 16, "de", "high", "energetic", _, _),
    ("spricht Englisch mit deutschem Akzent, Mann, 40", "m", 40, "en", _, _, _, _),
    ("Weihnachtsmann: tief, gutmütig, alt", "m", 80, "de", "deep", "warm", _, _),
    ("Mann, Ende 50, Radiomoderator, sehr lebhaft und etwas warm", "m", 58, "de", _, "energetic", _, "podcast"),
    ("20 Jahre Erfahrung im Radio, männlich, tief", "m", 40, "de", "deep", _, _, "podcast"),
    ("Stimme mit 120 Hz, männlich", "m", 40, "de", "neutral", _, _, _),
    ("Eine 1980er Radiostimme", "f", 40, "de", _, _, _, "podcast"),
    ("keine tiefe Stimme, kein alter Mann", "m", 40, "de", "neutral", _, _, _),
    ("weibl., ca. 45, klar", "f", 45, "de", "bright", _, _, _),
    ("Siebzigjähriger, rau", "m", 70, "de", "low", _, _, _),
    ("eine Siebzigerin", "f", 75, "de", _, _, _, _),
    ("ein kleines Mädchen", "f", 16, "de", _, _, _, _),
    ("Erzählerin für meinen Sohn, 40", "f", 40, "de", _, _, _, "audiobook"),
    ("Die Stimme soll hell sein, aber nicht schrill. Männlich.", "m", 40, "de", "bright", _, _, _),
    ("Ein Vater Mitte dreißig liest seinen Kindern vor", "m", 35, "de", _, _, _, _),
    ("wie Loriot", "m", 60, "de", "low", "serious", "slow", _),
    ("w, 30, hell", "f", 30, "de", "bright", _, _, _),
    ("Ein Sprecher, der nicht nuschelt, geduldig", "m", 40, "de", _, "calm", _, _),
    ("Ich suche eine Stimme für meine App: weiblich, Anfang 40, sanft, beruhigend", "f", 42, "de", _, "gentle", _, _),
    ("Eine Stimme wie Angela Merkel, aber schneller", "f", 60, "de", _, "serious", "fast", _),
]

ENGLISH = [
    ("A warm, deep male voice in his fifties, speaking slowly.", "m", 55, "en", "deep", "warm", "slow", _),
    ("mid-fifties newsreader, female, serious", "f", 55, "en", _, "serious", _, "news"),
    ("teenager, lively, high-pitched girl", "f", 18, "en", "high", "energetic", _, _),
    ("very low voice, man, not too fast", "m", 40, "en", "deep", _, "medium", _),
    ("woman in her thirties, slightly low, very calm, speaks Spanish", "f", 35, "es", "low", "calm", _, _),
    ("kind old lady reading bedtime stories", "f", 80, "en", _, "gentle", _, "audiobook"),
    ("12-year-old boy", "m", 16, "en", _, _, _, _),
    ("a forty-eight-year-old man, gravelly, brisk", "m", 48, "en", "low", _, "fast", _),
    ("Middle-aged woman, professional, phone menu", "f", 45, "en", _, "confident", _, "telephone"),
    ("not deep, not slow, female, 25", "f", 25, "en", "neutral", _, "medium", _),
    ("a man who isn't too cheerful, rather serious, early 60s", "m", 62, "en", _, "serious", _, _),
    ("She sounds young and bubbly, talks really fast", "f", 25, "en", _, "cheerful", "very_fast", _),
    ("He has a slightly deep voice and never rushes; late forties", "m", 48, "en", "low", _, _, _),
    ("Female, 22, upbeat, ad for sneakers", "f", 22, "en", _, "cheerful", _, "advertising"),
    ("documentary narrator, male, elderly, slow and wise", "m", 80, "en", _, "confident", "slow", _),
    ("airport announcements, German woman, crisp and clear, around 40", "f", 40, "de", "bright", _, _, "announcement"),
    ("soft-spoken mother, gentle, lullabies", "f", 40, "en", _, "gentle", _, _),
    ("voice assistant, neutral, female, medium pace", "f", 40, "en", "neutral", _, "medium", "assistant"),
    ("old wizard, deep booming, extremely slow", "m", 80, "en", "deep", _, "very_slow", _),
    ("someone between 30 and 40, male, trustworthy", "m", 35, "en", _, "warm", _, _),
    ("a man of about fifty, husky", "m", 50, "en", "low", _, _, _),
    ("over 60, she speaks with authority", "f", 63, "en", _, "confident", _, _),
    ("nearly 70 year old grandfather, warm", "m", 69, "en", _, "warm", _, _),
    ("not like a robot, friendly girl, 19", "f", 19, "en", _, "friendly", _, _),
    ("like Morgan Freeman", "m", 68, "en", "deep", "calm", "slow", "documentary"),
    ("like Morgan Freeman but a woman in her forties, and fast", "f", 45, "en", "deep", "calm", "fast", _),
    ("A voice like David Attenborough, very low", "m", 75, "en", "deep", "warm", "slow", "documentary"),
    ("neither deep nor slow, male", "m", 40, "en", "neutral", _, "medium", _),
    ("quick, energetic sports reporter, guy, 30s", "m", 35, "en", _, "energetic", "fast", "news"),
    ("not an old man, not a child either", "m", 40, "en", _, _, _, _),
    ("I want a villain: a sinister, whispering man, around 50", "m", 50, "en", _, "serious", _, _),
    ("narrator for my novel. He's in his early seventies, gruff but kind", "m", 72, "en", "low", "gentle", _, _),
    ("fiftysomething woman", "f", 55, "en", _, _, _, _),
    ("thirty-something woman, relaxed", "f", 35, "en", _, "calm", _, _),
    ("She's in her late 20's, British, crisp", "f", 28, "en", "bright", _, _, _),
    ("A 50-ish guy", "m", 50, "en", _, _, _, _),
    ("Not a woman's voice. Deep.", "m", 40, "en", "deep", _, _, _),
    ("a voice that isn't male", "f", 40, "en", "neutral", _, _, _),
    ("20 years of experience, male", "m", 40, "en", _, _, _, _),
    ("sounds like Darth Vader", "m", 60, "en", "deep", "confident", "slow", _),
    ("French woman, 27, charming", "f", 27, "fr", _, "friendly", _, _),
    ("a woman with a Russian accent, low, 50", "f", 50, "en", "low", _, _, _),
    ("tutorial voice, female, patient and calm, 35 y/o", "f", 35, "en", _, "calm", _, "learning"),
]


def replies(text: str) -> dict[str, Any]:
    return dict(suggest(text, TRAITS))


def test_what_a_description_says_is_understood_and_can_be_ordered() -> None:
    wrong = {}
    for text, *fields in (*GERMAN, *ENGLISH):
        reply, expected = replies(text), said(*fields)
        if others := {name: reply[name] for name in expected if reply[name] != expected[name]}:
            wrong[text] = others, reply["reason"]
        assert 1 <= len(reply["name"]) <= 80
        assert reply["reason"]
        assert len(reply["hints"]) <= HINTS
        order = {name: reply[name] for name in FIELDS} | {"label": reply["name"]}
        decided = voice_spec(read(DesignOrder, order), TRAITS, DESIGNER, random.Random(1))
        assert decided.traits == {axis: reply[axis] for axis in AXES}
    assert not wrong


def test_a_text_that_says_nothing_gets_plain_traits_and_hints_that_say_so() -> None:
    for text in ("", " ", "asdf qwertz", "12 34567 !!!", "😀😀", "你好", "?!", "the the the", "der die das"):
        reply = replies(text)
        assert {axis: reply[axis] for axis in AXES} == NEUTRAL, text
        assert (reply["language"] in ("de", "en"), reply["age_years"], len(reply["hints"])) == (True, 40, HINTS), text
        assert ("Nothing" in reply["reason"]) or ("nichts" in reply["reason"]), text


def test_hints_say_what_is_contradictory_missing_or_not_possible_in_the_language_of_the_text() -> None:
    assert "weiblich" in replies("Eine Frau, 50, warm")["reason"]
    assert "female" in replies("a woman, 50, warm")["reason"]
    words = {
        "like Morgan Freeman": "Names",
        "Stimme wie Angela Merkel, Frau": "Namen",
        "eine Stimme wie Erika Mustermann, Frau, 40, warm": "Namen",
        "sounds like John Q Smith, a man, 40": "Names",
        "wie der Nachbar Peter Schmidt, bitte männlich": "Kein Alter",
        "a man and a woman, both 40": "woman and a man",
        "Mann, 40, sehr tief und hell": "widersprechen",
        "man, 40, slow and fast": "contradict",
        "a 20-year-old man of 60 years": "Different ages",
        "a 12-year-old boy": "16 to 90",
        "a 120 years old man": "16 to 90",
        "a man of 40 with a French accent": "accent",
        "deep and warm": "gender",
        "a deep man": "age",
    }
    hints = {text: replies(text)["hints"] for text in words}
    assert not {text: hints[text] for text, word in words.items() if not any(word in hint for hint in hints[text])}


def test_who_denies_every_trait_of_an_axis_gets_the_plain_one_and_a_hint() -> None:
    for axis, entries_of in TRAITS.axes.items():
        words = {id: trait.words["en"][0].strip("-") for id, trait in entries_of.items()}
        reply = suggest(" ".join(f"not {word}." for word in words.values()), TRAITS)
        assert entries_of[reply[axis]].is_plain, axis
        assert any("contradict" in hint for hint in reply["hints"]), (axis, reply)


def test_no_name_and_no_word_of_the_client_is_repeated() -> None:
    names = ["Morgan Freeman", "Angela Merkel", "Erika Mustermann", "Zaphod Beeblebrox", "Attenborough", "Heidi Klum"]
    for frame in ("like {}", "a voice like {}, but warm", "Stimme wie {} bitte", "{}", "von {} gesprochen"):
        for name in names:
            answered = json.dumps(replies(frame.format(name)), ensure_ascii=False).lower()
            assert not [part for part in name.lower().split() if part in answered], frame


def test_names_bring_no_traits_unless_they_are_meant() -> None:
    reply = replies("sounds like Jane Strong Slow, female, 40")
    assert (reply["character"], reply["tempo"]) == ("friendly", "medium")
    reply = replies("a woman, 30, not like Morgan Freeman")
    assert (reply["gender"], reply["age_years"], reply["timbre"]) == ("f", 30, "neutral")
    for text in ("A woman, 30, like I said, calm", "a woman of 40, like German radio", "Frau, 40, süß wie Honig, warm"):
        assert not any("Name" in hint for hint in replies(text)["hints"]), text


UNITS = (
    *("a", "9", "40 ", "not ", "like ", "like Xx ", "a-", "a'", ",", "30-40-", " \t\n", "ß", "jährig "),
    *("\ufdfa", "\u0663\u0661\u00b2", "\u202e\u200f", "{traits} {0.__class__} %s ", "\x00"),
)
FILLED = [*(("", unit) for unit in UNITS), ("wie ", "Aa "), ("a", "\u0301")]
HOSTILE = [(start + unit * SUGGEST_CHARS)[:SUGGEST_CHARS] for start, unit in FILLED]


def test_a_text_that_means_harm_is_answered_like_any_other() -> None:
    for text in HOSTILE:
        reply = replies(text)
        assert AGE_YEARS[0] <= reply["age_years"] <= AGE_YEARS[1], text[:10]
        assert len(reply["hints"]) <= HINTS, text[:10]
        assert len(json.dumps(reply)) < 2000, text[:10]


def test_time_grows_with_the_length_of_the_text_at_most() -> None:
    replies("warm")
    for text in HOSTILE:
        once, eightfold = (min(_seconds(part) for _ in range(3)) for part in (text, text * 8))
        assert eightfold < 24 * once + 0.01, text[:10]


def _seconds(text: str) -> float:
    began = time.process_time()
    replies(text)
    return time.process_time() - began


def test_random_texts_of_all_known_words_give_orders() -> None:
    draw = random.Random(7)
    words = [word.strip("-") for word in WORDS]
    for _round in range(300):
        text = " ".join(draw.choice([*words, str(draw.randint(0, 200)), ",", "."]) for _ in range(draw.randint(1, 40)))
        reply = replies(text)
        assert set(reply) == {*FIELDS, "name", "reason", "hints"}
        assert AGE_YEARS[0] <= reply["age_years"] <= AGE_YEARS[1]
        assert reply["gender"] in ("m", "f")
        assert all(reply[axis] in TRAITS.axes[axis] for axis in AXES)
        assert reply["language"] in DESIGNER.languages


def test_a_text_within_the_limit_is_taken_and_other_bodies_are_refused() -> None:
    for length in (1, SUGGEST_CHARS - 1, SUGGEST_CHARS):
        assert len(read(SuggestRequest, {"text": "x" * length}).text) == length
    for text in ("x" * (SUGGEST_CHARS + 1), "", " \n\t", None, 5, ["warm"]):
        assert refusal(read, SuggestRequest, {"text": text}).param == "text"
    assert refusal(read, SuggestRequest, {}).param == "text"
    assert refusal(read, SuggestRequest, {"text": "warm", "voice": "x"}).param == "voice"
