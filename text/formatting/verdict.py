"""Whether a formatted transcript says what the transcript says.

judge(transcript, formatted) -> Formatted

The tokens of both are aligned (`tokens.py`): between them anything may differ. Of the tokens themselves may differ

    nothing                        `ok`, and the formatted text (the verdicts are words of the API)
    here and there a plain word    `auffaellig`, and the formatted text
    more, or one that counts       not applied; the transcript as it was

A list marker is no change where the transcript has the ordinal: before it (`1. Erstens`), or in its place where the
list goes on. A hyphen inside a word is punctuation. What counts: numbers, signs, negations, words beside a number, a
row of words, words before or behind the text, letters of a script that was not there.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from rapidfuzz.distance import Levenshtein

from contract.transcription.transcript import Formatted
from text.formatting.tokens import Token, ordinal_at, tokenize
from text.formatting.words import is_negation, is_number, negates

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


@dataclass(frozen=True, slots=True)
class Change:
    """A place where the texts differ: tokens `[from_, to)` of the transcript became `[new_from, new_to)`."""

    from_: int
    to: int
    new_from: int
    new_to: int

    @property
    def words(self) -> int:
        return max(self.to - self.from_, self.new_to - self.new_from)


def judge(transcript: str, formatted: str) -> Formatted:
    """The formatted text with its verdict, or the transcript and the reason why it stays."""
    before, after = tokenize(transcript), tokenize(formatted)
    if max(len(before), len(after)) > MOST_TOKENS:
        return unformatted(transcript, TOO_LONG)
    changes, is_sound = _compared(before, after)
    changed = sum(change.words for change in changes)
    coverage = max(0.0, 1 - changed / max(len(before), 1))
    if not changed and is_sound:
        return Formatted(formatted, "ok", 1.0)
    if is_sound and _are_few(changed, len(before)) and _are_plain(changes, before, after):
        return Formatted(formatted, "auffaellig", coverage)
    return unformatted(transcript, WORDING_CHANGED, coverage)


def unformatted(transcript: str, reason: str, coverage: float = 0.0) -> Formatted:
    """The transcript as it was: a pass that failed proves nothing."""
    return Formatted(transcript, "auffaellig", coverage, reason)


def _are_few(changed: int, words: int) -> bool:
    return changed <= max(1, int(words * CHANGED_SHARE)) and changed < words * (1 - LEAST_COVERAGE)


def _compared(before: Sequence[Token], after: Sequence[Token]) -> tuple[list[Change], bool]:
    """Where the texts differ, and whether what is the same still means the same."""
    numbers: dict[str, int] = {}
    ids = [[numbers.setdefault(token.text, len(numbers)) for token in text] for text in (before, after)]
    opcodes = Levenshtein.opcodes(*ids)
    changes: list[Change] = []
    is_sound = True
    for is_same, group in groupby(opcodes, key=lambda code: code.tag == "equal"):
        codes = list(group)
        change = Change(codes[0].src_start, codes[-1].src_end, codes[0].dest_start, codes[-1].dest_end)
        if is_same:
            is_sound = is_sound and not any(map(_lost_a_digit, *_sides(change, before, after)))
        elif not _only_hyphens_differ(*_sides(change, before, after)):
            changes.append(change)
    return _without_lists(changes, before, after), is_sound


def _sides(change: Change, before: Sequence[Token], after: Sequence[Token]) -> tuple[Sequence[Token], Sequence[Token]]:
    return before[change.from_ : change.to], after[change.new_from : change.new_to]


def _lost_a_digit(old: Token, new: Token) -> bool:
    """Whether a number was turned into a list marker, or a spoken marker is gone."""
    became_marker = new.kind == "number" and new.opens_line and new.is_pointed and not old.is_pointed
    return became_marker or (old.has_marker and not new.has_marker)


def _only_hyphens_differ(old: Sequence[Token], new: Sequence[Token]) -> bool:
    """Whether `E-Mail` became `Email` or `E Mail`, or the other way round. What counts is never put together."""
    if "".join(token.text for token in old) != "".join(token.text for token in new):
        return False
    if any(map(_is_guarded, (*old, *new))):
        return False
    return _boundaries(old).keys() ^ _boundaries(new).keys() <= {
        place for side in (old, new) for place, is_joined in _boundaries(side).items() if is_joined
    }


def _boundaries(side: Sequence[Token]) -> dict[int, bool]:
    """After how many letters a token begins inside a row, and whether a hyphen joins it to the one before."""
    places = accumulate(len(token.text) for token in side[:-1])
    return dict(zip(places, (token.is_joined for token in side[1:]), strict=True))


def _without_lists(changes: list[Change], before: Sequence[Token], after: Sequence[Token]) -> list[Change]:
    """Leaves out markers that stand in the place of an ordinal, where they count on from 1 to 2 at least."""
    replaced = {c.new_from: value for c in changes if (value := _replaced_ordinal(c, before, after))}
    if not replaced:
        return changes
    lists: list[list[int]] = [[]]
    for index in range(len(after)):
        value = replaced.get(index) or _marked(after, index)
        if value == 1:
            lists.append([index])
        elif value == len(lists[-1]) + 1:
            lists[-1].append(index)
    counted = {index for places in lists if len(places) > 1 for index in places}
    return [c for c in changes if c.new_from not in replaced or c.new_from not in counted]


def _replaced_ordinal(change: Change, before: Sequence[Token], after: Sequence[Token]) -> int | None:
    """The value of a marker that stands in the place of an ordinal: `1. Milch` for `Erstens Milch`."""
    old, new = _sides(change, before, after)
    if len(old) != 1 or len(new) != 1 or not old[0].opens_clause or not (new[0].opens_line and new[0].is_pointed):
        return None
    ordinal = ordinal_at(old, 0)
    return ordinal.value if ordinal and new[0].text == str(ordinal.value) else None


def _marked(after: Sequence[Token], index: int) -> int | None:
    """The value of an ordinal that has a marker before it."""
    ordinal = ordinal_at(after, index) if after[index].has_marker else None
    return ordinal.value if ordinal else None


def _are_plain(changes: Sequence[Change], before: Sequence[Token], after: Sequence[Token]) -> bool:
    """Whether no change is more than a plain word here or there."""
    new = [token for change in changes for token in _sides(change, before, after)[1]]
    return _scripts(new) <= _scripts(before) and not any(_counts(change, before, after) for change in changes)


def _counts(change: Change, before: Sequence[Token], after: Sequence[Token]) -> bool:
    """Whether a change means more than its words."""
    old, new = _sides(change, before, after)
    is_added_outside = not old and change.from_ in (0, len(before))
    if change.words > LONGEST_ROW or is_added_outside or any(map(_is_guarded, (*old, *new))):
        return True
    beside = [*before[max(change.from_ - 1, 0) : change.from_], *before[change.to : change.to + 1]]
    beside += [*after[max(change.new_from - 1, 0) : change.new_from], *after[change.new_to : change.new_to + 1]]
    if any(token.kind != "word" or is_number(token.text) for token in beside):
        return True
    return len(old) == len(new) == 1 and negates(old[0].text, new[0].text)


def _is_guarded(token: Token) -> bool:
    return token.kind != "word" or is_number(token.text) or is_negation(token.text)


def _scripts(side: Sequence[Token]) -> set[str]:
    """First words of the names of its letters: `LATIN`, `CYRILLIC`, `VARIATION`."""
    letters = {letter for token in side for letter in token.text}
    return {unicodedata.name(letter, "").partition(" ")[0] for letter in letters}
