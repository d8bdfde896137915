"""Subtitles: srt and vtt. Text of a recording cannot add cues, markup or times of its own."""

from __future__ import annotations

import html
from collections.abc import Iterable

from contract.transcription.engine import Segment

ARROW = "-->"


def srt(segments: Iterable[Segment]) -> str:
    """SubRip: numbered cues with a comma before the milliseconds."""
    return "".join(
        f"{number}\n{_time(s.start, ',')} {ARROW} {_time(s.end, ',')}\n{_line(s.text).replace(ARROW, '->')}\n\n"
        for number, s in enumerate(segments, 1)
    )


def vtt(segments: Iterable[Segment]) -> str:
    """WebVTT: a point before the milliseconds, and the text is markup."""
    cues = (
        f"{_time(s.start, '.')} {ARROW} {_time(s.end, '.')}\n{html.escape(_line(s.text), quote=False)}\n\n"
        for s in segments
    )
    return "WEBVTT\n\n" + "".join(cues)


def _line(text: str) -> str:
    """One line: an empty one would end the cue."""
    return " ".join(text.split())


def _time(seconds: float, separator: str) -> str:
    """`01:02:03,456`, rounded once, so that 1.9996 s is 2 s and never 1.1000."""
    ms = max(0, round(seconds * 1000))
    return f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}{separator}{ms % 1000:03d}"
