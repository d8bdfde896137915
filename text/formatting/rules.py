"""Structure by rules, where no chat model gives it: white space is moved and list markers are added, nothing else.

salutation            a blank line after it
pauses                a new paragraph after a long one, or after a shorter one where the paragraph has some length
spoken lists          a line for each item, with a marker; a paragraph after the last
closing               a paragraph of its own, the name on a line of its own
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, pairwise

import regex

from contract.transcription.engine import Segment
from text.formatting.letters import body_begins, closing_begins
from text.formatting.lists import items
from text.formatting.sentences import WIDE_STOPS, pauses, sentence_starts
from text.formatting.tokens import STOPS, WHITE, Token, normal, tokens

LONG_PAUSE_S = 2.0
"""After which a sentence begins a paragraph."""

PAUSE_S = 0.7
"""The same once the paragraph has SENTENCES."""

SENTENCES = 4
MOST_SENTENCES = 6

LEAST_WORDS = 4
"""A pause after fewer words is one for effect: "Erstens. (...) Milch."."""

UNPUNCTUATED_WORDS = 60
"""Where no sentence has ended for so long, a long pause ends one."""

_SPACE = regex.compile(f"[{WHITE}]+", regex.VERSION1)
_EDGES = regex.compile(rf"\A[{WHITE}]+|[{WHITE}]+\Z", regex.VERSION1)
_ENDS = (*STOPS, *",\u060c\u3001\uff0c\u2013\u2014-")
_CLOSERS = "\u300d\u300f\u3011\uff09\u300b\u201d\u2019"


def structured(transcript: str, segments: Sequence[Segment]) -> str:
    """`transcript` with structure. `segments` say when it was spoken."""
    text: str = _EDGES.sub("", normal(transcript))
    found = tokens(text)
    if not found:
        return text
    starts, silences = sentence_starts(found), pauses(text, found, segments)
    breaks = _lists(found, starts)
    body = body_begins(found, text)
    if body is not None:
        breaks[body] = "\n\n" + breaks.get(body, "").lstrip("\n")
    closing = closing_begins(found, text)
    if closing:
        breaks[closing[0]] = "\n\n"
        if closing[1] is not None:
            breaks[closing[1]] = "\n"
    _add_paragraphs(breaks, found, starts, silences, closing[0] if closing else len(found))
    return _written(text, found, starts, breaks)


def _lists(found: Sequence[Token], starts: Sequence[bool]) -> dict[int, str]:
    """What stands before each item, and before what follows a list."""
    breaks: dict[int, str] = {}
    for numbered in items(found, starts):
        for index, value in numbered.items():
            breaks[index] = ("\n\n" if value == 1 else "\n") + f"{value}. "
        if (end := _end_of(list(numbered), starts)) is not None:
            breaks.setdefault(end, "\n\n")
    return breaks


def _end_of(begins: Sequence[int], starts: Sequence[bool]) -> int | None:
    """Where the last item ends: it gets as many sentences as the longest before it."""
    inner = max(sum(starts[one + 1 : other]) for one, other in pairwise(begins))
    later = (index for index in range(begins[-1] + 1, len(starts)) if starts[index])
    return next(islice(later, inner, None), None)


def _add_paragraphs(
    breaks: dict[int, str], found: Sequence[Token], starts: Sequence[bool], silences: Mapping[int, float], end: int
) -> None:
    """Paragraphs up to token `end`, where no other break is."""
    begin = sentences = 0
    for index in range(1, end):
        if index in breaks:
            begin, sentences = index, 0
            continue
        sentences += starts[index]
        silence_s, words = silences.get(index, 0.0), index - begin
        if starts[index]:
            is_over = silence_s >= LONG_PAUSE_S and words >= LEAST_WORDS
            is_over = is_over or sentences >= MOST_SENTENCES or (sentences >= SENTENCES and silence_s >= PAUSE_S)
        else:
            is_over = silence_s >= LONG_PAUSE_S and not sentences and words >= UNPUNCTUATED_WORDS
        if is_over:
            breaks[index] = "\n\n"
            begin, sentences = index, 0


def _written(text: str, found: Sequence[Token], starts: Sequence[bool], breaks: Mapping[int, str]) -> str:
    """`text` with `breaks` in the place of white space, where there is some and nothing is torn."""
    pieces: list[str] = []
    done = 0
    for index in sorted(breaks):
        if index == 0:
            pieces.append(breaks[0].lstrip("\n"))
        elif place := _place(found[index - 1], found[index], starts[index]):
            pieces += text[done : place[0]], breaks[index]
            done = place[1]
    return "".join(pieces) + text[done:]


def _place(previous: Token, token: Token, is_start: bool) -> tuple[int, int] | None:
    """The white space before a token that a break replaces. None where a break would tear what belongs together."""
    if token.kind == "sign" or (token.kind == "number" and not (is_start and previous.kind == "word")):
        return None
    gap = token.before
    ended = max(gap.rfind(end) for end in _ENDS) + 1
    if white := _SPACE.search(gap, ended):
        return previous.end + white.start(), previous.end + white.end()
    if any(stop in gap for stop in WIDE_STOPS):
        after = ended + len(gap[ended:]) - len(gap[ended:].lstrip(_CLOSERS))
        return previous.end + after, previous.end + after
    return None
