"""Makes segments of an HTTP API's answer to a recording. Everything in it is checked.

    {"text": ..., "language": ..., "segments": [{"text", "start", "end"}, ...]}

Words come among the segments, or in a list of their own with `word` for `text`. They are put together into segments
here, each with its part of the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from contract.transcription.engine import LANGUAGES, Segment, TimedWord, joined
from models.provider import ProviderError
from text.sentences import ends_sentence

PAUSE_S = 1.0
"""Seconds between words of one segment, at most."""

LONGEST_S = 30.0
"""Seconds of a segment made of words, at most."""

SKIP_CHARS = 16
"""Characters of the text between one word and the next, at most."""


class ProviderTranscript(NamedTuple):
    """Transcript of a provider; `language` is one of LANGUAGES, None if the provider names none of them."""

    segments: tuple[Segment, ...]
    language: str | None


def read(body: bytes, seconds: float, words_in: str | None = None) -> ProviderTranscript:
    """The answer for a recording of `seconds`. Raises ProviderError.

    Times are kept between 0 and `seconds` and in order. A text without segments is one for the whole recording.
    `words_in` is the list that holds the words, None where those were not asked for.
    """
    answer = _parsed(body)
    text = _text(answer.get("text"))
    language = answer.get("language")
    pieces = list(_pieces(answer.get(words_in or "segments") or [], seconds))
    if words_in and text and not pieces:
        raise ProviderError("it sent no timestamps of words")
    if words_in:
        segments = tuple(_of_words(text, pieces))
    else:
        whole = [TimedWord(text, 0.0, seconds)] if text else []
        segments = tuple(Segment(piece.text, piece.start, piece.end) for piece in pieces or whole)
    return ProviderTranscript(segments, language if isinstance(language, str) and language in LANGUAGES else None)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise ProviderError("its answer is not JSON") from None
    if not isinstance(answer, dict):
        raise ProviderError("its answer is not a JSON object")
    return answer


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ProviderError("a text in it is not a string")
    try:
        value.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can spell and no client could be sent
        raise ProviderError("a text in it has invalid characters") from None
    return value.strip()


def _pieces(listed: Any, seconds: float) -> Iterator[TimedWord]:
    """The segments or words that have a text, none before the one that it follows."""
    if not isinstance(listed, list):
        raise ProviderError("its segments are not a list")
    earliest = 0.0
    for item in listed:
        if not isinstance(item, dict):
            raise ProviderError("a segment is not an object")
        text = _text(item["text"] if "text" in item else item.get("word"))
        earliest = _time(item.get("start"), earliest, seconds)
        if text:
            yield TimedWord(text, earliest, _time(item.get("end"), earliest, seconds))


def _time(value: Any, earliest: float, latest: float) -> float:
    """`value` within its bounds; `earliest` for what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:  # NaN is no number either
        return earliest
    return float(min(max(value, earliest), latest))


def _of_words(text: str, words: Sequence[TimedWord]) -> Iterator[Segment]:
    """Segments that end with a sentence, or before a pause."""
    places = _places(text, words)
    for first, end in _runs(text, words, places):
        part = tuple(words[first:end])
        if places is None:
            passage = joined(word.text for word in part)
        else:
            passage = text[places[first] if first else 0 : places[end] if end < len(words) else None].strip()
        yield Segment(passage, part[0].start, max(word.end for word in part), part)


def _runs(text: str, words: Sequence[TimedWord], places: Sequence[int] | None) -> Iterator[tuple[int, int]]:
    first = 0
    for end in range(1, len(words)):
        before, after = words[end - 1], words[end]
        word = before.text if places is None else text[places[end - 1] : places[end]]
        pauses = after.start - before.end > PAUSE_S
        if pauses or after.end - words[first].start > LONGEST_S or ends_sentence(word):
            yield first, end
            first = end
    if words:
        yield first, len(words)


def _places(text: str, words: Sequence[TimedWord]) -> list[int] | None:
    """Returns where in `text` each word begins; None if one is not found soon after the one before."""
    places, end = [], 0
    for word in words:
        place = text.find(word.text, end, end + SKIP_CHARS + len(word.text))
        if place < 0:
            return None
        places.append(place)
        end = place + len(word.text)
    return places
