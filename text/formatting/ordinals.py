"""Spoken ordinals: what begins an item of a list. German, English, French, Spanish, Italian, Portuguese, Dutch.

spoken_ordinal(["und", "zweitens", "eier"]) -> Ordinal(value=2, is_certain=True)

All languages are one table: no word of it has another value in another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

CERTAIN = (
    "erstens zweitens drittens viertens fünftens sechstens siebtens achtens neuntens zehntens",
    "firstly secondly thirdly fourthly fifthly sixthly seventhly eighthly ninthly tenthly",
    "premièrement deuxièmement troisièmement quatrièmement cinquièmement sixièmement septièmement huitièmement",
)
"""Words that do nothing but count items."""

POSSIBLE = (
    "first second third fourth fifth sixth seventh eighth ninth tenth",
    "primero segundo tercero cuarto quinto sexto séptimo octavo noveno décimo",
    "primo secondo terzo quarto quinto sesto settimo ottavo nono decimo",
    "primeiro segundo terceiro quarto quinto sexto sétimo oitavo nono décimo",
)
"""Words that count items at the beginning of a sentence, and are adjectives elsewhere."""

AFTER = {
    "als": "erstes zweites drittes viertes fünftes sechstes siebtes achtes neuntes zehntes",
    "ten": "eerste tweede derde vierde vijfde zesde zevende achtste negende tiende",
    "en": "primer segundo tercer cuarto quinto",
    "in": "primo secondo terzo quarto quinto",
    "em": "primeiro segundo terceiro quarto quinto",
}
"""Words that count items after another word: `als erstes`, `ten eerste`, `en primer lugar`."""

_HEADS = "punkt nummer schritt point number step item numéro étape punto número paso numero passo ponto punt stap"
HEADS = frozenset(_HEADS.split())
"""What is counted with numbers: `Punkt eins`, `step 2`."""

NUMBERS = (
    "eins zwei drei vier fünf sechs sieben acht neun zehn",
    "one two three four five six seven eight nine ten",
    "un deux trois quatre cinq six sept huit neuf dix",
    "uno dos tres cuatro cinco seis siete ocho nueve diez",
    "uno due tre quattro cinque sei sette otto nove dieci",
    "um dois três quatro cinco seis sete oito nove dez",
    "een twee drie vier vijf zes zeven acht negen tien",
    "1 2 3 4 5 6 7 8 9 10",
)

CONNECTIVES = frozenset({"und", "and", "et", "y", "e", "en", "ed"})
"""What may stand before the last item."""


class Ordinal(NamedTuple):
    """Which item begins. `is_certain` where the word can mean nothing else."""

    value: int
    is_certain: bool


def _values(*lines: str) -> dict[str, int]:
    return {word: value for line in lines for value, word in enumerate(line.split(), 1)}


_CERTAIN = _values(*CERTAIN)
_POSSIBLE = _values(*POSSIBLE)
_AFTER = {lead: _values(line) for lead, line in AFTER.items()}
_NUMBERS = _values(*NUMBERS)

WORDS = frozenset(_CERTAIN) | frozenset(_POSSIBLE) | {word for values in _AFTER.values() for word in values}
"""Every ordinal."""


def spoken_ordinal(words: Sequence[str]) -> Ordinal | None:
    """What `words`, in lower case, begin with, if that begins an item. It looks at three of them."""
    if words and words[0] in CONNECTIVES:
        found = _ordinal(words[1:])
        # "and second" may be any second; "and secondly" is not.
        if found and found.is_certain:
            return found
    return _ordinal(words)


def _ordinal(words: Sequence[str]) -> Ordinal | None:
    first, second = (*words[:2], "", "")[:2]
    if first in _CERTAIN:
        return Ordinal(_CERTAIN[first], True)
    if first in _POSSIBLE:
        return Ordinal(_POSSIBLE[first], False)
    if first in HEADS and second in _NUMBERS:
        return Ordinal(_NUMBERS[second], False)
    if value := _AFTER.get(first, {}).get(second):
        return Ordinal(value, False)
    return None
