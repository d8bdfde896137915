"""How dictated letters begin and end: "Sehr geehrte Frau Müller,", "Best regards, Jane".

body_begins(tokens, text)          after the salutation
closing_begins(tokens, text)       the closing, and the name below it
"""

from __future__ import annotations

from collections.abc import Sequence

from text.formatting.tokens import Token
from text.sentences import ends_sentence

MOST_NAMES = 6
"""Words that may follow a greeting or a closing."""

GREETINGS = """
sehr geehrte|sehr geehrter|sehr geehrtes|geehrte|werte|werter|liebe|lieber|liebes|hallo|guten tag|guten morgen
guten abend|moin|grüß gott|servus
dear|hello|hi|hey|good morning|good afternoon|good evening
cher|chère|chers|chères|bonjour|bonsoir
estimado|estimada|estimados|estimadas|querido|querida|queridos|queridas|hola|buenos días|buenas tardes
caro|cara|cari|care|gentile|gentili|egregio|egregia|buongiorno|buonasera|ciao
prezado|prezada|prezados|prezadas|olá|bom dia|boa tarde
beste|geachte|lieve|goedemorgen|goedemiddag|goedenavond|hoi
"""

_ADDRESSED = """
frau herr herrn damen und herren zusammen alle allerseits miteinander team kollegen kolleginnen freunde
there all everyone everybody sir madam or and team friends colleagues
madame monsieur messieurs mesdames et tous toutes à
señor señora señores y a todos todas signor signora signori e tutti senhor senhora senhores
heer mevrouw meneer en allemaal
von van der de la di da dos du le mr mrs ms dr prof
"""
ADDRESSED = frozenset(_ADDRESSED.split())
"""Words of an address beside names."""

CLOSINGS = """
mit freundlichen grüßen|mit freundlichem gruß|mit besten grüßen|mit lieben grüßen|mit herzlichen grüßen
freundliche grüße|viele grüße|liebe grüße|beste grüße|herzliche grüße|schöne grüße|hochachtungsvoll|herzlichst
bis bald|bis dann|alles gute|alles liebe
with kind regards|with best regards|best regards|kind regards|warm regards|regards|yours sincerely|yours faithfully
yours truly|sincerely yours|sincerely|best wishes|all the best|many thanks|take care|cheers
bien cordialement|cordialement|bien à vous|amicalement
saludos cordiales|un saludo|saludos|atentamente|un abrazo
cordiali saluti|distinti saluti|un caro saluto|a presto
com os melhores cumprimentos|atenciosamente|cumprimentos|um abraço
met vriendelijke groet|met vriendelijke groeten|hartelijke groet|groeten
"""

_SIGNED = "ihr ihre dein deine euer eure your und and et y e en von van der de la dr prof"
SIGNED = frozenset(_SIGNED.split())
"""Words of a signature beside names."""

CERTAIN_WORDS = 3
"""A closing of at least so many words needs no comma before it."""


def _phrases(table: str) -> list[tuple[str, ...]]:
    phrases = [tuple(phrase.split()) for line in table.strip().splitlines() for phrase in line.split("|")]
    return sorted(phrases, key=len, reverse=True)


_GREETINGS = _phrases(GREETINGS)
_CLOSINGS = _phrases(CLOSINGS)


def body_begins(tokens: Sequence[Token], text: str) -> int | None:
    """Index of the first token after the salutation, None where there is none, or nothing after it."""
    body = None
    while (begin := _after_greeting(tokens, text, body or 0)) is not None:
        body = begin
    return body


def closing_begins(tokens: Sequence[Token], text: str) -> tuple[int, int | None] | None:
    """Indices of the first token of the closing and of the name, if there is one; None without a closing."""
    longest = len(_CLOSINGS[0]) + MOST_NAMES
    for index in range(max(1, len(tokens) - longest), len(tokens)):
        phrase = _phrase_at(_CLOSINGS, tokens, index)
        if not phrase or not (tokens[index].opens_clause or len(phrase) >= CERTAIN_WORDS):
            continue
        names = index + len(phrase)
        if all(_is_name(token, text, SIGNED) for token in tokens[names:]):
            return index, names if names < len(tokens) else None
    return None


def _after_greeting(tokens: Sequence[Token], text: str, start: int) -> int | None:
    greeting = _phrase_at(_GREETINGS, tokens, start)
    if not greeting or _phrase_at(_CLOSINGS, tokens, start):
        return None
    names = start + len(greeting)
    for index in range(names, min(names + MOST_NAMES + 1, len(tokens))):
        token = tokens[index]
        if token.opens_clause and (token.before.strip() != "." or ends_sentence(text, token.start)):
            return index if index > names else None
        if not _is_name(token, text, ADDRESSED):
            return None
    return None


def _phrase_at(phrases: Sequence[tuple[str, ...]], tokens: Sequence[Token], index: int) -> tuple[str, ...] | None:
    """The longest of `phrases` that begins with a token. `ss` counts as `ß`."""
    words = tuple(token.text for token in tokens[index : index + len(phrases[0])])
    for phrase in phrases:
        if words[: len(phrase)] in (phrase, tuple(word.replace("ß", "ss") for word in phrase)):
            return phrase
    return None


def _is_name(token: Token, text: str, others: frozenset[str]) -> bool:
    return token.kind == "word" and (text[token.start].isupper() or token.text in others)
