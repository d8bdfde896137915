"""The text of a recording, and the formats of the answer.

transcript.add(update)                     takes what the engine has transcribed since the last update
reply(transcript, formatted)               json and verbose_json
plain(transcript, formatted)               text, srt and vtt
delta(text), done(transcript, formatted)   OpenAI's events of a streamed answer
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from contract.transcription.engine import Segment, TimedWord, TranscriptUpdate, continuation, joined
from contract.transcription.request import TranscriptionPlan
from contract.wires import event

Verdict = Literal["ok", "auffaellig"]

PLAIN_TYPES = {"text": "text/plain", "srt": "application/x-subrip", "vtt": "text/vtt"}


@dataclass(frozen=True, slots=True)
class Formatted:
    """Result of the structuring pass.

    Attributes:
        text: structured text, or the unchanged transcript if no structure was applied.
        verdict: result of the check that no wording changed.
        coverage: share of the words of the transcript that the text has unchanged, 0 to 1.
        reason: reason why no structure was applied.
    """

    text: str
    verdict: Verdict
    coverage: float
    reason: str | None = None


@dataclass(slots=True)
class Transcript:
    """The text of one recording so far."""

    plan: TranscriptionPlan
    duration_s: float = 0.0
    done_s: float = 0.0
    detected: str | None = None
    segments: list[Segment] = field(default_factory=list)
    text: str = ""

    def add(self, update: TranscriptUpdate) -> str:
        """Adds an update and returns its text, as a continuation of the text so far."""
        self.duration_s, self.done_s = update.duration_s, update.done_s
        self.detected = update.language or self.detected
        self.segments += update.segments
        text = continuation(self.text, joined(segment.text for segment in update.segments))
        self.text += text
        return text

    @property
    def language(self) -> str | None:
        """Language in the answer: the requested one, or the detected one if the model reports it."""
        return self.plan.echo or (self.detected if self.plan.model.reports_language else None)

    @property
    def seconds(self) -> float:
        """Billed `duration`: the length of the recording, or the end of the last segment."""
        end_s = self.segments[-1].end if self.segments else 0.0
        return end_s if self.plan.model.is_detailed else self.duration_s

    @property
    def billed_seconds(self) -> int:
        """Seconds to bill for the transcription so far, rounded up."""
        return math.ceil(self.seconds if self.plan.model.is_detailed else min(self.done_s, self.duration_s))


class SegmentObject(TypedDict):
    """A passage. Times are in seconds."""

    text: str
    start: float
    end: float
    speakerId: None


class DetailedSegment(TypedDict):
    """A passage, with the figures of Whisper. Times are in seconds, `seek` in hundredths."""

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


class WordObject(TypedDict):
    """A word. Times are in seconds."""

    word: str
    start: float
    end: float


class FormattingObject(TypedDict):
    """Result of the structuring pass, and of the check that no wording changed."""

    applied: bool
    verdict: Verdict
    coverage: float
    reason: NotRequired[str]


class TranscriptionReply(TypedDict):
    """A transcript. All fields but `text` depend on the request."""

    text: str
    language: NotRequired[str | None]
    duration: NotRequired[float]
    segments: NotRequired[list[SegmentObject] | list[DetailedSegment]]
    words: NotRequired[list[WordObject]]
    text_raw: NotRequired[str]
    formatting: NotRequired[FormattingObject]


def reply(transcript: Transcript, formatted: Formatted | None = None) -> TranscriptionReply:
    """Returns the body of `json` and `verbose_json`."""
    body: TranscriptionReply = {"text": (formatted or transcript).text}
    if transcript.plan.request.response_format == "verbose_json":
        body["language"] = transcript.language
        body["duration"] = round(transcript.seconds, 3)
        _add_times(body, transcript)
    if formatted:
        body["text_raw"] = transcript.text
        coverage = round(formatted.coverage, 4)
        body["formatting"] = {"applied": formatted.reason is None, "verdict": formatted.verdict, "coverage": coverage}
        if formatted.reason is not None:
            body["formatting"]["reason"] = formatted.reason
    return body


def plain(transcript: Transcript, formatted: Formatted | None = None) -> tuple[str, str]:
    """Returns the body of `text`, `srt` and `vtt`, and its media type."""
    write = {"srt": srt, "vtt": vtt}.get(transcript.plan.request.response_format)
    text = write(transcript.segments) if write else (formatted or transcript).text
    return text, PLAIN_TYPES.get(transcript.plan.request.response_format, "text/plain")


def delta(text: str) -> bytes:
    """Returns the event for more text."""
    return event({"type": "transcript.text.delta", "delta": text})


def done(transcript: Transcript, formatted: Formatted | None = None) -> bytes:
    """Returns the last event: the whole answer, and the billed duration."""
    body: dict[str, Any] = {"type": "transcript.text.done", **reply(transcript, formatted)}
    return event(body | {"usage": {"type": "duration", "seconds": math.ceil(transcript.seconds)}})


def _add_times(body: TranscriptionReply, transcript: Transcript) -> None:
    granularities = transcript.plan.request.timestamp_granularities
    words = [word for segment in transcript.segments for word in segment.words]
    if transcript.plan.model.is_detailed:
        body["segments"] = [_detailed(number, segment) for number, segment in enumerate(transcript.segments)]
        if "word" in granularities:
            body["words"] = [{"word": w.text, "start": round(w.start, 3), "end": round(w.end, 3)} for w in words]
    elif granularities:
        body["segments"] = [_timed(part) for part in (words if transcript.plan.words else transcript.segments)]


def _timed(part: Segment | TimedWord) -> SegmentObject:
    return {"text": part.text, "start": round(part.start, 3), "end": round(part.end, 3), "speakerId": None}


def _detailed(number: int, segment: Segment) -> DetailedSegment:
    return {
        "id": number,
        "seek": segment.seek,
        "start": round(segment.start, 3),
        "end": round(segment.end, 3),
        "text": segment.text,
        "tokens": list(segment.tokens),
        "temperature": segment.temperature or 0.0,
        "avg_logprob": segment.avg_logprob or 0.0,
        "compression_ratio": segment.compression_ratio or 0.0,
        "no_speech_prob": segment.no_speech_prob or 0.0,
    }


ARROW = "-->"


def srt(segments: Iterable[Segment]) -> str:
    """Returns SubRip: numbered cues, with a comma before the milliseconds."""
    return "".join(
        f"{number}\n{_time(s.start, ',')} {ARROW} {_time(s.end, ',')}\n{_line(s.text).replace(ARROW, '->')}\n\n"
        for number, s in enumerate(segments, 1)
    )


def vtt(segments: Iterable[Segment]) -> str:
    """Returns WebVTT, with a point before the milliseconds, and markup as text."""
    cues = (
        f"{_time(s.start, '.')} {ARROW} {_time(s.end, '.')}\n{html.escape(_line(s.text), quote=False)}\n\n"
        for s in segments
    )
    return "WEBVTT\n\n" + "".join(cues)


def _line(text: str) -> str:
    """Returns `text` in one line: an empty line would end the cue."""
    return " ".join(text.split())


def _time(seconds: float, separator: str) -> str:
    """Returns `01:02:03,456`, rounded once, so that 1.9996 s is 2 s and never 1.1000."""
    ms = max(0, round(seconds * 1000))
    return f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}{separator}{ms % 1000:03d}"
