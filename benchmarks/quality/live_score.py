"""What a session has made of a conversation whose words and times are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rapidfuzz.distance import Levenshtein

from benchmarks.quality.hour import Turn
from benchmarks.quality.live_session import TRANSCRIPT, Session
from text.spoken import spelled

MISSING_WORDS = 4
"""A run of so many words that have no counterpart was not written down; fewer may be misheard."""

Interval = tuple[float, float]
"""From when to when, in seconds of the track."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A turn as the session cut it: where it lies, its text, and when text came, in seconds of the clock."""

    span: Interval
    text: str
    first_at: float | None
    final_at: float | None


@dataclass(frozen=True, slots=True)
class Judged:
    """Turns that were spoken or written down together, most of them one.

    Attributes:
        seconds: of speech, once where two speak.
        words, wrong: of what was said, and how many were added, dropped or replaced.
        lost_s: speech that is neither written down nor called unheard.
        unheard_s: speech that is called unheard.
        final_s: from the end of the speech until its text is final; None where it never is.
        partial_s: from the begin of the speech to the first text.
    """

    begin_s: float
    turns: int
    seconds: float
    noise_db: float | None
    overlaps: bool
    words: int
    wrong: int
    lost_s: float
    unheard_s: float
    final_s: float | None
    partial_s: float | None


def judged(turns: Sequence[Turn], session: Session) -> list[Judged]:
    """A row for each turn; turns that share a turn of the session, or speak at the same time, share a row."""
    pieces = (session.ledger or {}).get("unheard", [])
    unheard = union((piece["start_ms"] / 1000, piece["end_ms"] / 1000) for piece in pieces)
    return [_row(said, heard, unheard, session) for said, heard in _together(turns, heard_of(session))]


def heard_of(session: Session) -> list[Heard]:
    """The turns of the session in their order."""
    by_item: dict[str, list[dict[str, object]]] = {}
    for event in session.events:
        if "item_id" in event:
            by_item.setdefault(str(event["item_id"]), []).append(event)
    return sorted((_heard(events) for events in by_item.values()), key=lambda each: each.span)


def _heard(events: Sequence[dict[str, object]]) -> Heard:
    of = {str(event["type"]): event for event in reversed(events)}  # the first of each kind
    start_ms = of.get("input_audio_buffer.speech_started", {}).get("audio_start_ms", 0)
    end_ms = of.get("input_audio_buffer.speech_stopped", {}).get("audio_end_ms", start_ms)
    span = (float(str(start_ms)) / 1000, float(str(end_ms)) / 1000)
    final = of.get(f"{TRANSCRIPT}.completed")
    first = of.get(f"{TRANSCRIPT}.delta") or final
    text = str(final["transcript"]) if final else ""
    return Heard(span, text, _at(first), _at(final))


def _at(event: dict[str, object] | None) -> float | None:
    return float(str(event["at"])) if event else None


def _together(turns: Sequence[Turn], heard: Sequence[Heard]) -> Iterable[tuple[list[Turn], list[Heard]]]:
    """Both sides in groups whose times touch. Text where nobody speaks is a group without a turn."""
    said = [((turn.begin_s, turn.end_s), turn) for turn in turns]
    written = [(each.span, each) for each in heard]
    for begin_s, end_s in union([span for span, _ in said] + [span for span, _ in written]):
        yield (
            [turn for span, turn in said if begin_s <= span[0] <= end_s],
            [each for span, each in written if begin_s <= span[0] <= end_s],
        )


def _row(said: list[Turn], heard: list[Heard], unheard: list[Interval], session: Session) -> Judged:
    language = said[0].language if said else ""
    words = [word for turn in said for word in spelled(turn.text, language)]
    written = [word for each in heard for word in spelled(each.text, language)]
    wrong, missing = _differences(words, written)
    speech = union((turn.begin_s, turn.end_s) for turn in said)
    seconds, covered_s = length(speech), within(speech, union([*unheard, *(each.span for each in heard)]))
    unheard_s = within(speech, unheard)
    # What lies in no turn is lost, and so are words that the text of a turn misses, if nobody says so.
    silent_s = max(seconds * missing / len(words) - unheard_s, 0.0) if words else 0.0
    finals = [each.final_at for each in heard if each.final_at is not None]
    firsts = [each.first_at for each in heard if each.first_at is not None]
    return Judged(
        begin_s=said[0].begin_s if said else heard[0].span[0],
        turns=len(said),
        seconds=seconds,
        noise_db=said[0].noise_db if said else None,
        overlaps=any(turn.overlaps for turn in said),
        words=len(words),
        wrong=wrong,
        lost_s=max(seconds - covered_s, silent_s),
        unheard_s=unheard_s,
        final_s=max(finals) - session.sent_at(said[-1].end_s) if said and finals else None,
        partial_s=min(firsts) - session.sent_at(said[0].begin_s) if said and firsts else None,
    )


def _differences(words: list[str], written: list[str]) -> tuple[int, int]:
    """Words that are wrong, and those of them that miss in runs."""
    wrong = missing = 0
    for is_same, codes in groupby(Levenshtein.opcodes(words, written), key=lambda code: code.tag == "equal"):
        if is_same:
            continue
        run = list(codes)
        said, heard = run[-1].src_end - run[0].src_start, run[-1].dest_end - run[0].dest_start
        wrong += max(said, heard)
        if said - heard >= MISSING_WORDS:
            missing += said - heard
    return wrong, missing


def union(intervals: Iterable[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for begin_s, end_s in sorted(intervals):
        if merged and begin_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end_s))
        else:
            merged.append((begin_s, end_s))
    return merged


def length(intervals: Iterable[Interval]) -> float:
    return sum(end_s - begin_s for begin_s, end_s in intervals)


def within(speech: Sequence[Interval], others: Sequence[Interval]) -> float:
    """Seconds of `speech` that lie in `others`; neither has overlaps."""
    return sum(
        max(0.0, min(end_s, until_s) - max(begin_s, from_s)) for begin_s, end_s in speech for from_s, until_s in others
    )
