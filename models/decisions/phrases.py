"""How questions are worded for a sentence embedder: as phrases that are compared with the state.

choice, score   each `id: description` or level, read after the question
binary          its two descriptions
yes or no       where options say nothing by themselves: what is asked, as a statement that holds or not
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import NamedTuple

from contract.decisions.decision import FAILS, HOLDS
from contract.decisions.questions import BinaryQuestion, ChoiceQuestion, Question

LEAD_CHARS = 120
"""Of a question, as many are read before each of its options: so no request costs much more than its length."""

BARE = {"yes": True, "true": True, HOLDS: True, "no": False, "false": False, FAILS: False} | {
    "ja": True, "wahr": True, "nein": False, "falsch": False
}  # fmt: skip
"""Options that only say whether what is asked holds."""

MARKS = string.punctuation + "“”„‚‘’«»…–—¿¡"

WORDS = """
    a an the this that these those it its is are was were be been being am do does did has have had will would can could
    should may might must to of in on at by for from with about as and or if than then there here who whom whose what
    which when where why how he she they we you i him her them his our your my me us some any it's that's there's
    der die das den dem des ein eine einen einem einer eines dieser diese dieses ist sind war waren sein wird werden
    wurde hat haben hatte kann soll muss darf zu von im am an auf bei für mit um über aus und oder als ob wer
    welche welcher welches wo wann wie warum er sie es wir ihr ich ihn ihm ihnen seine ihre sich geht
"""
FUNCTION_WORDS = frozenset(WORDS.split())
"""Of English and German. They are like some word of any text, and hide what a statement is about."""


class Phrase(NamedTuple):
    """A text as it is read: after its lead, which is no part of it."""

    lead: str
    text: str


class Statement(NamedTuple):
    """A text that holds or not; `option` is the place of the option that is right where it holds."""

    text: str
    option: int


class Asked(NamedTuple):
    """A question as it is read: a phrase for each option, or the one of a statement."""

    question: Question
    phrases: Sequence[Phrase]
    statement: Statement | None


def posed(question: Question) -> Asked:
    """A question as it is compared with the state."""
    options = wordings(question)
    if stated := statement(question, options):
        return Asked(question, [Phrase("", content(stated.text))], stated)
    lead = "" if isinstance(question, BinaryQuestion) else question.instructions[:LEAD_CHARS]
    return Asked(question, [Phrase(lead, option) for option in options], None)


def wordings(question: Question) -> list[str]:
    """Each option in words."""
    if isinstance(question, BinaryQuestion):
        return [question.true_description, question.false_description]
    if isinstance(question, ChoiceQuestion):
        names = ((option.id.replace("_", " "), option.description) for option in question.options)
        return [f"{name}: {description}" if description else name for name, description in names]
    return list(question.levels)


def statement(question: Question, options: Sequence[str]) -> Statement | None:
    """What is to be judged where one of two options is bare, or both are; None where both say something themselves.

    Two bare options leave only the question. One leaves the other option: it holds or not.
    """
    bare = [BARE.get(option.strip().strip(MARKS).lower()) for option in options]
    if len(options) != 2 or set(bare) in ({None}, {True}, {False}):
        return None
    if None in bare:
        return Statement(options[bare.index(None)], bare.index(None))
    return Statement(question.instructions, bare.index(True))


def content(text: str) -> str:
    """`text` without function words and marks; whole where nothing else is in it."""
    words = (word.strip(MARKS) for word in text.split())
    return " ".join(word for word in words if word and word.lower() not in FUNCTION_WORDS) or text
