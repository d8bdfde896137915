"""Items of spoken lists: "Erstens ..., zweitens ... und drittens ...".

Words that are adjectives too ("first", "second") begin an item at the beginning of a sentence only. Those that do
nothing but count ("firstly") may stand anywhere, but two of them inside sentences are no list yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from text.formatting.ordinals import spoken_ordinal
from text.formatting.tokens import Token

LEAST_ITEMS = 2
LEAST_INSIDE = 3
"""Where not every item begins a part of a sentence."""


def items(found: Sequence[Token], starts: Sequence[bool]) -> list[dict[int, int]]:
    """The lists of a text: for each item the index of its first token, and its number. Numbers count on from 1."""
    lists: list[dict[int, int]] = []
    current: dict[int, int] = {}
    for index, value in _candidates(found, starts):
        if value == len(current) + 1:
            current[index] = value
        elif value == 1:
            lists.append(current)
            current = {index: 1}
    return [numbered for numbered in (*lists, current) if _is_list(numbered, found)]


def _is_list(numbered: dict[int, int], found: Sequence[Token]) -> bool:
    least = LEAST_ITEMS if all(found[index].opens_clause for index in numbered) else LEAST_INSIDE
    return len(numbered) >= least


def _candidates(found: Sequence[Token], starts: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Tokens with which an item may begin, and its number. Those that have a marker already keep it."""
    for index, token in enumerate(found):
        ordinal = None if token.has_marker else spoken_ordinal([token.text for token in found[index : index + 3]])
        if ordinal and (ordinal.is_certain or starts[index] or token.opens_sentence):
            yield index, ordinal.value
