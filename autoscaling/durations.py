"""Predicts a duration from the last ones.

The ingress replicas of one database learn together: each hands on what it has seen, and continues from what all have.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_right
from collections import deque
from statistics import fmean
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

log = logging.getLogger(f"parlance.{__name__}")

LONGEST_S = 1e9
TAIL = 4.0
"""Beyond the longest duration that was seen, chances fall with this power of the duration."""

_TEXT: TypeAdapter[list[float]] = TypeAdapter(list[Annotated[float, Field(ge=0, le=LONGEST_S)]])


class Durations:
    """Quantiles of a duration, in seconds. Used in one event loop.

    Among n durations, the next one is longer than all of them with the chance 1 / (n + 1): where little was seen,
    quantiles say so.

    Args:
        memory: this many of the last durations count.
        prior_s: expected duration until one was seen; None: unknown.
    """

    def __init__(self, memory: int, prior_s: float | None = None) -> None:
        self._memory = memory
        self._ascending = [] if prior_s is None else [prior_s]
        self._last = deque[float](maxlen=memory)
        self._unsaved = deque[float](maxlen=memory)
        """Durations that `merged` has not taken over yet."""

    @property
    def is_empty(self) -> bool:
        """Says if nothing is expected at all."""
        return not self._ascending

    def add(self, seconds: float) -> None:
        """Takes a duration."""
        self._unsaved.append(seconds)
        self._last.append(seconds)
        self._ascending = sorted(self._last)

    def quantile(self, share: float) -> float:
        """The duration that `share` of all are shorter than, 0 to 1. Raises ValueError where none is expected."""
        if not self._ascending:
            raise ValueError("nothing is known of this duration")
        shorter, part = divmod(share * (len(self._ascending) + 1), 1)
        place = int(shorter)
        if place >= len(self._ascending):
            longer = 1 / (len(self._ascending) + 1)
            return float(self._ascending[-1] * (longer / max(1e-9, 1 - share)) ** (1 / TAIL))
        low, high = self._ascending[max(0, place - 1)], self._ascending[place]
        return low + (high - low) * part

    def mean(self) -> float:
        """The mean of most durations: the longest are left out. Raises ValueError where none is expected."""
        return fmean(self._ascending[: max(1, len(self._ascending) * 19 // 20)])

    def left(self, passed_s: float, share: float) -> float:
        """The same quantile of what is left of a duration of which `passed_s` have passed."""
        chance = self._chance(passed_s) if passed_s > 0 else 0.0
        return max(0.0, self.quantile(chance + (1 - chance) * share) - passed_s)

    def merged(self, text: str | None) -> str:
        """`text`, which another process has written, with the durations that this one has `unsaved`."""
        return json.dumps([round(seconds, 3) for seconds in (*_read(text), *self._unsaved)][-self._memory :])

    def adopt(self, text: str, saved: int) -> None:
        """Continues from `text`, in which the first `saved` of `unsaved` durations are counted."""
        for _ in range(min(saved, len(self._unsaved))):
            self._unsaved.popleft()
        self._last = deque((*_read(text), *self._unsaved), self._memory)
        self._ascending = sorted(self._last) or self._ascending

    @property
    def unsaved(self) -> int:
        """Returns how many durations `merged` would add."""
        return len(self._unsaved)

    def _chance(self, seconds: float) -> float:
        """The chance that a duration is no longer than `seconds`."""
        count, shorter = len(self._ascending), bisect_right(self._ascending, seconds)
        if shorter == count > 0:
            return float(1 - (self._ascending[-1] / seconds) ** TAIL / (count + 1))
        if not shorter:
            return 0.0
        low, high = self._ascending[shorter - 1 : shorter + 1]
        return (shorter + (seconds - low) / (high - low)) / (count + 1)


def _read(text: str | None) -> list[float]:
    """The durations of a text; none of one that this class has not written: they can be learned again."""
    try:
        return _TEXT.validate_json(text or "[]", strict=True)
    except ValidationError:
        log.error("the stored durations of an engine cannot be read; they are learned again")
        return []
