"""Whether speech said its text, by our own ears: what is answered, and of whom they are good enough to say so."""

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
    "not_measured",  # ears and voice were never measured together in this language, or the ears were weak
    "incomplete",  # the sound did not come to its end
    "busy",  # too much waits to be heard
    "ears_failed",
    "late",
]
# Names of the wire that name nothing: no class of ours may have them.
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
Passage.__doc__ = "Words of the text, and what was heard in their place."
SpeechVerdictReply.__doc__ = "What our ears heard of speech, beside its text."

VERDICT_ATTEMPTS = 3
"""How often a text is spoken with `verify: "retry"`, at most."""
VERDICT_AGAIN_S = 60
"""Seconds after which no further attempt begins: proxies and clients do not wait for ever for a first byte."""
VERDICT_LISTEN_S = 300
"""Seconds in which our ears must have heard the sound, the start of a cold transcriber included."""
VERDICT_KEPT_S = 600
"""Seconds for which a verdict can be fetched."""
VERDICTS_KEPT = 2000
"""Verdicts that an ingress process without Redis remembers; of more, the oldest are gone."""
VERDICT_PASSAGE_CHARS = 1000
"""Of a passage that differs, what is told of each side: signs that stand for whole sentences make it a book."""
VERDICT_RETRY_S = 2
"""`Retry-After` while a verdict is not there."""

LEAST_FOUND = 0.9
"""Share of faults that ears must find in a voice and language; below it they are too weak to be asked."""
MOST_FALSE_ALARMS = 0.05
"""Share of sentences without a fault that they may blame."""


@dataclass(frozen=True, slots=True)
class SpeechVerdict:
    """A verdict.

    Attributes:
        reason: why nothing can be said, where that is so.
        transcript: what was heard; None where nothing was listened to.
        first, longest: the first passage that counts as different; words of the longest one that differs at all.
        attempts: how often the text was spoken.
    """

    judgement: Judgement
    reason: Reason | None = None
    transcript: str | None = None
    word_error_rate: float | None = None
    first: tuple[str, str] | None = None
    longest: int | None = None
    attempts: int = 1

    def reply(self) -> SpeechVerdictReply:
        """The verdict as it is answered."""
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
    """Nothing can be said, and why."""
    return SpeechVerdict("not_verifiable", reason)


def can_judge(ears: str, speaker: str, language: str, voice: str | None) -> bool:
    """Whether the runtime `ears` is measured to be good enough for a voice of the runtime `speaker` in `language`."""
    row = measured().get(ears, {}).get(speaker, {}).get(language)
    if row is None or voice in row.get("weak_voices", ()):
        return False
    return bool(row["found"] >= LEAST_FOUND and row["false_alarms"] <= MOST_FALSE_ALARMS)


@cache
def measured() -> dict[str, Any]:
    """The table that `python -m benchmarks.quality spoken --write` writes: ears, voice, language, figures."""
    return tomllib.loads(Path(__file__).with_name("ears.toml").read_text("utf-8"))
