"""Speech verification: a transcriber checks speech against its text, where it is measured to be good enough."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from typing_extensions import TypedDict

Verify = Literal["off", "report", "retry"]
Judgement = Literal["faithful", "differs", "not_verifiable"]
Reason = Literal[
    "no_ears",  # no transcriber is set up here, or enabled for the organisation
    "not_measured",  # transcriber and voice are not measured together in this language, or the transcriber is too weak
    "incomplete",  # the audio did not reach its end
    "busy",  # too much audio waits for verification
    "ears_failed",
    "late",
]
# Names of the wire that say nothing: classes of this project may not have them.
Passage = TypedDict("Passage", {"expected": str, "heard": str})  # noqa: UP013
SpeechVerdictReply = TypedDict(  # noqa: UP013
    "SpeechVerdictReply",
    {
        "object": Literal["speech.verdict"],
        "verdict": Judgement,
        "reason": Reason | None,
        "heard": str | None,
        "word_error_rate": float | None,
        "first_difference": Passage | None,
        "longest_difference": int | None,
        "attempts": int,
    },
)
Passage.__doc__ = "Words of the text, and the transcript in their place."
SpeechVerdictReply.__doc__ = "Verdict of the speech verification, with the transcript of the speech."

VERDICT_ATTEMPTS = 3
"""Most attempts to speak a text with `verify: "retry"`."""
VERDICT_AGAIN_S = 60
"""Seconds after which no further attempt begins: proxies and clients give up waiting for a first byte."""
VERDICT_LISTEN_S = 300
"""Seconds for the transcription of the speech, including the start of a cold transcriber."""
VERDICT_KEPT_S = 600
"""Seconds for which a verdict can be fetched."""
VERDICTS_KEPT = 2000
"""Stored verdicts of an organisation; without Redis, of all organisations in a process."""
VERDICT_PASSAGE_CHARS = 1000
"""Characters of each side of a different passage in a reply. It can be long where symbols are spoken as sentences."""
VERDICT_RETRY_S = 2
"""`Retry-After` while a verdict is not ready."""

LEAST_FOUND = 0.9
"""Share of faults that a transcriber must find in a voice and language to be used for verification."""
MOST_FALSE_ALARMS = 0.05
"""Largest share of faultless sentences that it may reject."""


@dataclass(frozen=True, slots=True)
class SpeechVerdict:
    """A verdict.

    Attributes:
        reason: reason for the lack of a judgement, if there is none.
        transcript: transcript of the speech; None if it was not transcribed.
        first, longest: first passage that counts as different; words of the longest passage that differs at all.
        attempts: number of times that the text was spoken.
    """

    judgement: Judgement
    reason: Reason | None = None
    transcript: str | None = None
    word_error_rate: float | None = None
    first: tuple[str, str] | None = None
    longest: int | None = None
    attempts: int = 1

    def reply(self) -> SpeechVerdictReply:
        """Returns the verdict in the form for clients."""
        rate = self.word_error_rate
        expected, transcript = (passage[:VERDICT_PASSAGE_CHARS] for passage in self.first or ("", ""))
        return {
            "object": "speech.verdict",
            "verdict": self.judgement,
            "reason": self.reason,
            "heard": self.transcript,
            "word_error_rate": None if rate is None else round(rate, 4),
            "first_difference": {"expected": expected, "heard": transcript} if self.first else None,
            "longest_difference": self.longest,
            "attempts": self.attempts,
        }


def unverified(reason: Reason) -> SpeechVerdict:
    """Returns a verdict without a judgement, for `reason`."""
    return SpeechVerdict("not_verifiable", reason)


def can_judge(transcriber: str, speaker: str, language: str, voice: str | None) -> bool:
    """Returns True if the runtime `transcriber` is measured as good enough for a voice of the runtime `speaker`."""
    row = measured().get(transcriber, {}).get(speaker, {}).get(language)
    if row is None or voice in row.get("weak_voices", ()):
        return False
    return bool(row["found"] >= LEAST_FOUND and row["false_alarms"] <= MOST_FALSE_ALARMS)


@cache
def measured() -> dict[str, Any]:
    """Returns the figures by transcriber, speaker and language that `python -m benchmarks.quality spoken` writes."""
    return tomllib.loads(Path(__file__).with_name("transcribers.toml").read_text("utf-8"))
