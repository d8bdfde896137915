"""Structure by rules, where no chat model gives it: white space is moved and list markers are added, nothing else.

salutation            a blank line after it
pauses                a new paragraph after a long one, or after a shorter one where the paragraph has some length
spoken lists          a line for each item, with a marker; a paragraph after the last
closing               a paragraph of its own, the name on a line of its own

Words that are adjectives too ("first", "second") begin an item at the beginning of a sentence only. Those that do
nothing but count ("firstly") may stand anywhere, but two of them inside sentences are no list yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, pairwise

import regex

from contract.transcription.engine import Segment
from text.formatting.letters import body_begins, closing_begins
from text.formatting.tokens import STOPS, WHITE, WIDE_STOPS, Token, normal, ordinal_at, tokenize
from text.formatting.words import counted
from text.sentences import ends_sentence

LONG_PAUSE_S = 2.0
"""A sentence after a longer pause begins a paragraph."""

PAUSE_S = 0.7
"""A sentence after a longer pause begins a paragraph once the current one has SENTENCES."""

SENTENCES = 4
MOST_SENTENCES = 6
"""Sentences of a paragraph, whatever the pauses."""

LEAST_WORDS = 4
"""A pause after fewer words is one for effect: "Erstens. (...) Milch."."""

UNPUNCTUATED_WORDS = 60
"""After this number of words without the end of a sentence, a long pause ends one."""

LEAST_ITEMS = 2
"""Items of a list where each begins a part of a sentence."""
LEAST_ITEMS_INSIDE = 3
"""Items of a list where one begins inside of such a part."""

_SPACE = regex.compile(f"[{WHITE}]+", regex.VERSION1)
_EDGES = regex.compile(rf"\A[{WHITE}]+|[{WHITE}]+\Z", regex.VERSION1)
_LETTER = regex.compile(r"[\p{L}\p{N}]")
_ENDS = (*STOPS, *",\u060c\u3001\uff0c\u2013\u2014-")
_CLOSERS = "\u300d\u300f\u3011\uff09\u300b\u201d\u2019"


def structured(transcript: str, segments: Sequence[Segment]) -> str:
    """`transcript` with structure. `segments` say when it was spoken."""
    text: str = _EDGES.sub("", normal(transcript))
    tokens = tokenize(text)
    if not tokens:
        return text
    # Does a sentence begin with the token?
    starts = [index == 0 or (t.is_apart and ends_sentence(text, t.start)) for index, t in enumerate(tokens)]
    breaks = _list_breaks(tokens, starts)
    body, (closing, name) = body_begins(tokens, text), closing_begins(tokens, text)
    if body is not None:
        breaks[body] = "\n\n" + breaks.get(body, "").lstrip("\n")
    if closing:
        breaks[closing] = "\n\n"
    if name:
        breaks[name] = "\n"
    _add_paragraphs(breaks, tokens, starts, _silences(text, segments), closing or len(tokens))
    return _with_breaks(text, tokens, starts, breaks)


def _silences(text: str, segments: Sequence[Segment]) -> dict[int, float]:
    """The position of the first letter of each segment to the seconds of silence before it.

    Segments follow one another in `text`; from the first one on that does not, nothing is known.
    """
    silences: dict[int, float] = {}
    position, end_s = 0, None
    for segment in segments:
        passage = _EDGES.sub("", normal(segment.text))
        if not passage:
            continue
        if white := _SPACE.match(text, position):
            position = white.end()
        if not text.startswith(passage, position):
            break
        letter = _LETTER.search(text, position, position + len(passage))
        if end_s is not None:
            silences[letter.start() if letter else position] = max(0.0, segment.start - end_s)
        position, end_s = position + len(passage), segment.end
    return silences


def _list_breaks(tokens: Sequence[Token], starts: Sequence[bool]) -> dict[int, str]:
    """Breaks and markers before each item, and the break behind a list. An item that has a marker keeps it."""
    ordinals = ((index, ordinal_at(tokens, index)) for index, token in enumerate(tokens) if not token.has_marker)
    opens = [start or token.opens_sentence for token, start in zip(tokens, starts, strict=True)]
    breaks: dict[int, str] = {}
    for items in counted((index, n) for index, (n, is_certain) in ordinals if n and (is_certain or opens[index])):
        if len(items) < (LEAST_ITEMS if all(tokens[index].opens_clause for index in items) else LEAST_ITEMS_INSIDE):
            continue
        for value, index in enumerate(items, 1):
            breaks[index] = ("\n\n" if value == 1 else "\n") + f"{value}. "
        # The last item gets as many sentences as the longest before it.
        inner = max(sum(starts[item + 1 : next_item]) for item, next_item in pairwise(items))
        later = (index for index in range(items[-1] + 1, len(starts)) if starts[index])
        if end := next(islice(later, inner, None), None):
            breaks.setdefault(end, "\n\n")
    return breaks


def _add_paragraphs(
    breaks: dict[int, str], tokens: Sequence[Token], starts: Sequence[bool], silences: Mapping[int, float], end: int
) -> None:
    """Adds paragraphs up to token `end`, where no other break is."""
    begin = sentences = 0
    for index in range(1, end):
        sentences += starts[index]
        silence_s, words = silences.get(tokens[index].start, 0.0), index - begin
        is_long = silence_s >= LONG_PAUSE_S
        if starts[index]:
            is_over = is_long and words >= LEAST_WORDS
            is_over = is_over or sentences >= MOST_SENTENCES or (sentences >= SENTENCES and silence_s >= PAUSE_S)
        else:
            is_over = is_long and not sentences and words >= UNPUNCTUATED_WORDS
        if is_over or index in breaks:
            breaks.setdefault(index, "\n\n")
            begin, sentences = index, 0


def _with_breaks(text: str, tokens: Sequence[Token], starts: Sequence[bool], breaks: Mapping[int, str]) -> str:
    """`text` with `breaks` in the place of white space, where there is some and nothing is torn."""
    parts: list[str] = []
    end = 0
    for index in sorted(breaks):
        if index == 0:
            parts.append(breaks[0].lstrip("\n"))
        elif gap := _gap(tokens[index - 1], tokens[index], starts[index]):
            parts += text[end : gap[0]], breaks[index]
            end = gap[1]
    return "".join(parts) + text[end:]


def _gap(previous: Token, token: Token, is_start: bool) -> tuple[int, int] | None:
    """The white space before a token that a break replaces. None where a break would tear what belongs together."""
    follows_word = previous.kind == "word" and not previous.text.endswith(".")  # as "No." does, which counts
    if token.kind == "sign" or (token.kind == "number" and not (is_start and follows_word)):
        return None
    gap = token.before
    after_stop = max(gap.rfind(end) for end in _ENDS) + 1
    if white := _SPACE.search(gap, after_stop):
        return previous.end + white.start(), previous.end + white.end()
    if any(stop in gap for stop in WIDE_STOPS):
        position = token.start - len(gap[after_stop:].lstrip(_CLOSERS))
        return position, position
    return None
