"""Sentences in many scripts, and cuts that hold for any text."""

import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from text.sentences import TextPart, ends_sentence, passages, sentences

TAGS = ("<breath>", "[laughter]", "<strong>", "</strong>")


def texts_of(text: str, limit: int = 200) -> list[str]:
    return [part.text.strip() for part in sentences(text, limit, TAGS)]


SPLIT: dict[str, list[str]] = {
    "Hello. How are you? Fine!": ["Hello.", "How are you?", "Fine!"],
    "Dr. Weiß kam am 3. Mai um 3.14 Uhr. Er blieb.": ["Dr. Weiß kam am 3. Mai um 3.14 Uhr.", "Er blieb."],
    "Das gilt z. B. für J. Smith. Sonst nicht.": ["Das gilt z. B. für J. Smith.", "Sonst nicht."],
    "He said „No.“ Then he left.": ["He said „No.“", "Then he left."],
    "Well... maybe. See a.b/c?d=e now.": ["Well... maybe.", "See a.b/c?d=e now."],
    "What?! Really.": ["What?!", "Really."],
    "你好。你好吗？很好！「真的。」他说。": ["你好。", "你好吗？", "很好！", "「真的。」", "他说。"],
    "नमस्ते। आप कैसे हैं? ठीक।": ["नमस्ते।", "आप कैसे हैं?", "ठीक।"],
    "كيف حالك؟ بخير.": ["كيف حالك؟", "بخير."],
    "안녕하세요. 반갑습니다.": ["안녕하세요.", "반갑습니다."],
    "Headline\nText that goes\non here.\n\nnext": ["Headline", "Text that goes\non here.", "next"],
    "<breath> Yes. <strong>No!</strong> Oh": ["<breath> Yes.", "<strong>No!</strong>", "Oh"],
    "<strong>No. Oh!</strong> <breath> So.<breath> Yes.": ["<strong>No.", "Oh!</strong>", "<breath> So.<breath> Yes."],
    "no end": ["no end"],
    "": [],
}


def test_sentences() -> None:
    assert {text: texts_of(text) for text in SPLIT} == SPLIT


def test_an_abbreviation_or_an_ordinal_ends_no_sentence() -> None:
    ended = ("Er kam.", "“He came.” ", "Ça va ? ", "He came. – ", "Well...", "你好。」", "Das war 2024.")
    unended = ("Sehr geehrter Herr Dr.", "la Sig.ra.", "Milch, Eier usw.", "J.", "am 3.", "er kam,", "er kam", "")
    expected = dict.fromkeys((*ended, "Es kostet 12,5.", "He said no."), True) | dict.fromkeys(unended, False)
    assert {text: ends_sentence(text) for text in expected} == expected
    text = "Dr. Smith came. He left."
    assert [end for end in range(len(text) + 1) if ends_sentence(text, end)] == [15, 16, 24]


FIRST_CUTS = [
    ("aaaaaaa, bbb ccc ddd", 19, "aaaaaaa, "),  # a comma before a space that comes later
    ("a, bbb ccc ddd eee", 17, "a, bbb ccc ddd "),  # but not a comma that leaves only a scrap
    ("aaa bbb ccc", 10, "aaa bbb "),
    ("aaabbbcccddd", 10, "aaabbbcccd"),
    ("天气很好，我们去公园散步吧然后", 10, "天气很好，"),
    ("1,234,567,890", 8, "1,234,56"),  # no comma of a sentence
    ("aaaaaa e\u0301e\u0301", 6, "aaaaaa"),
    ("abcde\u0301fgh", 5, "abcd"),
    ("abcd<breath>efgh", 9, "abcd"),
    ("ab👨‍👩‍👧‍👦cd", 5, "ab"),
]


def test_first_cut_of_a_long_sentence() -> None:
    assert [next(sentences(text, limit, TAGS)).text for text, limit, _ in FIRST_CUTS] == [cut for *_, cut in FIRST_CUTS]


def test_a_sentence_is_cut_when_it_is_longer_than_the_limit_and_passages_hold_as_many_as_fit() -> None:
    for length, lengths in ((49, [49]), (50, [50]), (51, [50, 1])):
        assert [len(part.text) for part in sentences("x" * length, 50)] == lengths
    assert list(sentences("Hi you.  Bye.", 100)) == [TextPart("Hi you.  ", 9), TextPart("Bye.", 13)]
    assert [part.text for part in passages("One. Two. Six. ", 10)] == ["One. Two. ", "Six. "]
    assert [part.end for part in passages("One. Two. Six. ", 9)] == [5, 10, 15]


ANY_TEXT = st.text(max_size=300) | st.lists(
    st.sampled_from([*TAGS, "a", "Ab", " ", "\n", ".", "!", "。", ",", "…", "e\u0301", "\u0301", "🇩🇪", "👨‍👩‍👧", "7"]),
    max_size=200,
).map("".join)


@settings(max_examples=300)
@given(text=ANY_TEXT, limit=st.integers(10, 60), cut=st.sampled_from([sentences, passages]))
@example(text="\u0301" * 500, limit=10, cut=sentences)
def test_parts_joined_are_the_text_and_nothing_that_belongs_together_is_cut(text: str, limit: int, cut) -> None:
    parts = list(cut(text, limit, TAGS))
    assert "".join(part.text for part in parts) == text
    assert all(0 < len(part.text) <= limit for part in parts)
    ends = {part.end for part in parts}
    assert sorted(ends) == [part.end for part in parts]
    atoms = [match.span() for match in regex.finditer("|".join([*map(regex.escape, TAGS), r"\X"]), text)]
    whole = {end for _, end in atoms}
    inside = {end for start, last in atoms if last - start > limit for end in range(start, last)}
    assert ends <= whole | inside


def test_four_thousand_characters_without_a_space_are_cut_quickly_and_whole() -> None:
    for unit in ("a", "a\u0301", ".", "\n", "…a", '!"', "天", "Mr.", "?.", ".!"):
        text = unit * (4000 // len(unit)) + "a"
        assert "".join(part.text for part in sentences(text, 200)) == text
