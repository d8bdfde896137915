"""The verdict if a formatted transcript says what the transcript says.

judge(transcript, formatted) -> Formatted

The tokens of both are aligned (`tokens.py`): between them anything may differ. Of the tokens themselves may differ

    nothing                        `ok`, and the formatted text (the verdicts are words of the API)
    here and there a plain word    `auffaellig`, and the formatted text
    more, or one that counts       not applied; the transcript as it was

A list marker is no change where the transcript has the ordinal: before it (`1. Erstens`), or in its place where the
list continues. A hyphen inside a word is punctuation. What counts: numbers, signs, negations, words beside a number, a
row of words, words before or behind the text, letters of a script that was not there.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

from contract.transcription.transcript import Formatted
from text.formatting.tokens import Token, ordinal_at, tokenize
from text.formatting.words import counted, is_negation, is_number, negates

CHANGED_SHARE = 0.03
"""Share of the words that may differ; one may in short texts."""

LEAST_COVERAGE = 0.5
"""More than this has to be the same, however few words there are."""

LONGEST_ROW = 2
"""Words in a row that may differ."""

MOST_TOKENS = 12_000
"""Longer texts are not compared. 20 minutes of very fast speech have 5,000 words, or 10,000 Chinese signs."""

WORDING_CHANGED = "wording_changed"
TOO_LONG = "transcript_too_long"


class Change(NamedTuple):
    """A place where the texts differ: from `start` on, tokens `old` became `new`, which begin at `new_start`."""

    start: int
    old: Sequence[Token]
    new_start: int
    new: Sequence[Token]

    @property
    def words(self) -> int:
        return max(len(self.old), len(self.new))


def judge(transcript: str, formatted: str) -> Formatted:
    """The formatted text with its verdict, or the transcript and the reason why it stays."""
    before, after = tokenize(transcript), tokenize(formatted)
    if max(len(before), len(after)) > MOST_TOKENS:
        return unformatted(transcript, TOO_LONG)
    numbers: dict[str, int] = {}
    ids = ([numbers.setdefault(token.text, len(numbers)) for token in tokens] for tokens in (before, after))
    changes: list[Change] = []
    is_sound = True
    for is_same, group in groupby(Levenshtein.opcodes(*ids), key=lambda code: code.tag == "equal"):
        codes = list(group)
        old = before[codes[0].src_start : codes[-1].src_end]
        new = after[codes[0].dest_start : codes[-1].dest_end]
        if is_same:
            is_sound = is_sound and not any(map(_lost_a_digit, old, new))
        elif not _only_hyphens_differ(old, new):
            changes.append(Change(codes[0].src_start, old, codes[0].dest_start, new))
    changes = _without_lists(changes, after)
    words, changed = len(before), sum(change.words for change in changes)
    coverage = max(0.0, 1 - changed / max(words, 1))
    if not changed and is_sound:
        return Formatted(formatted, "ok", 1.0)
    are_few = changed <= max(1, int(words * CHANGED_SHARE)) and changed < words * (1 - LEAST_COVERAGE)
    has_new_script = not _scripts([token for change in changes for token in change.new]) <= _scripts(before)
    if not is_sound or not are_few or has_new_script or any(_counts(change, before, after) for change in changes):
        return unformatted(transcript, WORDING_CHANGED, coverage)
    return Formatted(formatted, "auffaellig", coverage)


def unformatted(transcript: str, reason: str, coverage: float = 0.0) -> Formatted:
    """The transcript as it was: a pass that failed proves nothing."""
    return Formatted(transcript, "auffaellig", coverage, reason)


def _lost_a_digit(old: Token, new: Token) -> bool:
    """Says if a number was turned into a list marker, or a spoken marker is gone."""
    became_marker = new.kind == "number" and new.opens_line and new.is_pointed and not old.is_pointed
    return became_marker or (old.has_marker and not new.has_marker)


def _only_hyphens_differ(old: Sequence[Token], new: Sequence[Token]) -> bool:
    """Says if `E-Mail` became `Email` or `E Mail`, or the other way round. What counts is never put together."""
    if "".join(token.text for token in old) != "".join(token.text for token in new):
        return False
    if any(map(_is_guarded, (*old, *new))):
        return False
    # After how many letters a token begins in either row, and if a hyphen joins it to the one before.
    places, new_places = (
        dict(zip(accumulate(len(token.text) for token in row), (token.is_joined for token in row[1:]), strict=False))
        for row in (old, new)
    )
    return all((places | new_places)[place] for place in places.keys() ^ new_places.keys())


def _without_lists(changes: list[Change], after: Sequence[Token]) -> list[Change]:
    """Leaves out markers that stand in the place of an ordinal, where they count on from 1 to 2 at least."""
    replaced = {change.new_start: value for change in changes if (value := _replaced_ordinal(change))}
    if not replaced:
        return changes
    values = (
        (index, replaced.get(index) or (ordinal_at(after, index).value if token.has_marker else 0))
        for index, token in enumerate(after)
    )
    listed = {index for places in counted(values) if len(places) > 1 for index in places}
    return [change for change in changes if change.new_start not in replaced.keys() & listed]


def _replaced_ordinal(change: Change) -> int:
    """The value of a marker that stands in the place of an ordinal: `1. Milch` for `Erstens Milch`; 0 for none."""
    if len(change.old) != 1 or len(change.new) != 1:
        return 0
    (old,), (new,), value = change.old, change.new, ordinal_at(change.old, 0).value
    return value if old.opens_clause and new.opens_line and new.is_pointed and new.text == str(value) else 0


def _counts(change: Change, before: Sequence[Token], after: Sequence[Token]) -> bool:
    """Says if a change means more than its words."""
    start, old, new_start, new = change
    is_added_outside = not old and start in (0, len(before))
    if change.words > LONGEST_ROW or is_added_outside or any(map(_is_guarded, (*old, *new))):
        return True
    rows = ((before, start, start + len(old)), (after, new_start, new_start + len(new)))
    if any(map(_is_figure, [token for row, a, b in rows for token in (*row[max(a - 1, 0) : a], *row[b : b + 1])])):
        return True
    return len(old) == len(new) == 1 and negates(old[0].text, new[0].text)


def _is_figure(token: Token) -> bool:
    return token.kind != "word" or is_number(token.text)


def _is_guarded(token: Token) -> bool:
    return _is_figure(token) or is_negation(token.text)


def _scripts(tokens: Sequence[Token]) -> set[str]:
    """First words of the names of its letters: `LATIN`, `CYRILLIC`, `VARIATION`."""
    letters = {letter for token in tokens for letter in token.text}
    return {unicodedata.name(letter, "").partition(" ")[0] for letter in letters}
