"""Wording of questions for a sentence embedder: phrases that are compared with the state.

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
"""Characters of a question that are read before each of its options; bounded, so that no request costs much more than
its length."""

YES_NO_LABELS = {"yes": True, "true": True, HOLDS: True, "no": False, "false": False, FAILS: False} | {
    "ja": True, "wahr": True, "nein": False, "falsch": False
}  # fmt: skip
"""Options that only say whether what is asked holds."""

PUNCTUATION = string.punctuation + "“”„‚‘’«»…–—¿¡"

WORDS = """
    a an the this that these those it its is are was were be been being am do does did has have had will would can could
    should may might must to of in on at by for from with about as and or if than then there here who whom whose what
    which when where why how he she they we you i him her them his our your my me us some any it's that's there's
    der die das den dem des ein eine einen einem einer eines dieser diese dieses ist sind war waren sein wird werden
    wurde hat haben hatte kann soll muss darf zu von im am an auf bei für mit um über aus und oder als ob wer
    welche welcher welches wo wann wie warum er sie es wir ihr ich ihn ihm ihnen seine ihre sich geht
"""
FUNCTION_WORDS = frozenset(WORDS.split())
"""Function words of English and German. Any text has some like them, and they hide what a statement is about."""


class Phrase(NamedTuple):
    """A text as it is read: after its lead, which is not part of it."""

    lead: str
    text: str


class Statement(NamedTuple):
    """A text that holds or not; `option` is the index of the option that is right where it holds."""

    text: str
    option: int


class WordedQuestion(NamedTuple):
    """A question as it is read: a phrase for each option, or the single phrase of a statement."""

    question: Question
    phrases: Sequence[Phrase]
    statement: Statement | None


def worded(question: Question) -> WordedQuestion:
    """The question as it is compared with the state."""
    options = wordings(question)
    if stated := statement(question, options):
        return WordedQuestion(question, [Phrase("", content(stated.text))], stated)
    lead = "" if isinstance(question, BinaryQuestion) else question.instructions[:LEAD_CHARS]
    return WordedQuestion(question, [Phrase(lead, option) for option in options], None)


def wordings(question: Question) -> list[str]:
    """Each option in words."""
    if isinstance(question, BinaryQuestion):
        return [question.true_description, question.false_description]
    if isinstance(question, ChoiceQuestion):
        names = ((option.id.replace("_", " "), option.description) for option in question.options)
        return [f"{name}: {description}" if description else name for name, description in names]
    return list(question.levels)


def statement(question: Question, options: Sequence[str]) -> Statement | None:
    """Returns the phrases to judge if one of two options is bare, or both are; None if both say something themselves.

    Two bare options leave only the question. One bare option leaves the other option: it holds or not.
    """
    bare = [YES_NO_LABELS.get(option.strip().strip(PUNCTUATION).lower()) for option in options]
    if len(options) != 2 or set(bare) in ({None}, {True}, {False}):
        return None
    if None in bare:
        return Statement(options[bare.index(None)], bare.index(None))
    return Statement(question.instructions, bare.index(True))


def content(text: str) -> str:
    """`text` without function words and punctuation; all of it where it has no other words."""
    words = (word.strip(PUNCTUATION) for word in text.split())
    return " ".join(word for word in words if word and word.lower() not in FUNCTION_WORDS) or text


ORDINARY_TEXTS = {
    "English": (
        "The window in the hall is open, and somebody has left an umbrella there.",
        "Could you please send me the list of participants by Friday?",
        "We met at the station and took the bus to the lake.",
        "The delivery came this morning, everything was complete.",
        "Our neighbours have a new dog; it barks all night.",
        "I would like to change my appointment with the dentist to next week.",
        "The museum shows paintings of the last century until the end of June.",
        "Thank you for the lovely evening, we enjoyed it very much.",
        "The printer on the second floor does not work again.",
        "The council will discuss the new playground in its next session.",
        "My daughter starts school in autumn and is already excited.",
        "The soup needs a little more salt, then it is done.",
        "Shares of the company fell slightly after the announcement.",
        "He has read the book twice and recommends it to everybody.",
        "The road to the village is closed because of building works.",
        "Please find attached the contract for your signature.",
        "She runs ten kilometres every Sunday, even in the rain.",
        "I am not sure whether I shall come; I will tell you tomorrow.",
        "The team meets on Monday at nine to plan the month.",
        "The heating makes strange noises, can somebody look at it?",
        "The choir is looking for singers, no experience is needed.",
        "This is a note for the file: the customer called twice.",
        "The apartment has three rooms and a balcony to the south.",
        "The doctor advised him to rest for a few days.",
    ),
    "German": (
        "Das Fenster im Flur ist offen, und jemand hat dort einen Schirm vergessen.",
        "Können Sie mir bitte bis Freitag die Liste der Teilnehmer schicken?",
        "Wir trafen uns am Bahnhof und fuhren mit dem Bus zum See.",
        "Die Lieferung kam heute Morgen, alles war vollständig.",
        "Unsere Nachbarn haben einen neuen Hund; er bellt die ganze Nacht.",
        "Ich möchte meinen Termin beim Zahnarzt auf nächste Woche verschieben.",
        "Das Museum zeigt bis Ende Juni Gemälde des letzten Jahrhunderts.",
        "Danke für den schönen Abend, es hat uns sehr gefallen.",
        "Der Drucker im zweiten Stock geht schon wieder nicht.",
        "Der Rat spricht in der nächsten Sitzung über den neuen Spielplatz.",
        "Meine Tochter kommt im Herbst in die Schule und freut sich schon.",
        "Die Suppe braucht noch etwas Salz, dann ist sie fertig.",
        "Die Aktien des Unternehmens gaben nach der Meldung etwas nach.",
        "Er hat das Buch zweimal gelesen und empfiehlt es allen.",
        "Die Straße zum Dorf ist wegen Bauarbeiten gesperrt.",
        "Anbei erhalten Sie den Vertrag zur Unterschrift.",
        "Sie läuft jeden Sonntag zehn Kilometer, auch bei Regen.",
        "Ich weiß noch nicht, ob ich komme; ich sage morgen Bescheid.",
        "Das Team trifft sich am Montag um neun, um den Monat zu planen.",
        "Die Heizung macht seltsame Geräusche, kann jemand nachsehen?",
        "Der Chor sucht Stimmen, Erfahrung ist nicht nötig.",
        "Eine Notiz für die Akte: Der Kunde hat zweimal angerufen.",
        "Die Wohnung hat drei Zimmer und einen Balkon nach Süden.",
        "Der Arzt riet ihm, sich ein paar Tage zu schonen.",
    ),
}
"""Ordinary texts by language: what a statement is compared with besides the state.

Each is about something else, so that no subject is usual. The language with the texts most similar to a statement
counts: a statement is more similar to any text of its own language, and that answers nothing.
"""
