"""Gaps between requests, by hour of the week, and how long an engine is to stay warm for the next one.

This is the ski rental problem: an engine that stays warm pays rent, one that goes pays a cold hit. Without knowledge of
gaps, renting until the rent has reached the price costs twice the least at most: that is `idle_s`. With the
distribution of gaps at this hour, an engine stays for as long as costs least on average.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

ENOUGH = 10
"""Gaps from which something is learned. An hour of the week with fewer asks the hour of the day, and that all hours."""

RATIO = 1.2
"""Of the upper bound of a bucket to its lower one."""
BUCKETS = 75
"""The last begins after ten days."""

FADE = 0.98
"""Weight of one gap when the next of its hour has come: about the last fifty count."""

UNSEEN = 1.0
"""Weight of all unseen gaps together: of any length alike, up to some times the longest stay."""
UNSEEN_TIMES = 4.0

HOURS = 7 * 24


def hour_of(now_s: float) -> int:
    """The hour of the week of a Unix time, 0 to 167. In UTC: it only has to be the same one each week."""
    moment = datetime.fromtimestamp(now_s, UTC)
    return moment.weekday() * 24 + moment.hour


class Gaps:
    """Gaps of one engine, each in the hour in which it began."""

    def __init__(self, weights: dict[int, dict[int, float]] | None = None) -> None:
        self._weights = weights or {}
        """By hour of the week, then by bucket."""

    def add(self, began_s: float, gap_s: float) -> None:
        """Takes a gap that began at a Unix time and is over."""
        weights = self._weights.setdefault(hour_of(began_s), {})
        for bucket in weights:
            weights[bucket] *= FADE
        bucket = _bucket(gap_s)
        weights[bucket] = weights.get(bucket, 0.0) + 1

    def idle_s(self, now_s: float, price_s: float, least_s: float, most_s: float) -> float | None:
        """Returns the seconds to stay warm from now on; None if too little is known.

        `price_s` is what a cold hit costs, in seconds of one idle replica.
        """
        weights = self._at(now_s)
        if weights is None:
            return None
        weights = _with_unseen(weights, least_s, most_s)
        ends_s = {least_s, most_s, *(RATIO**bucket for bucket in weights)}
        choices = sorted(end_s for end_s in ends_s if least_s <= end_s <= most_s)
        return min(choices, key=lambda stay_s: sum(_costs(weights, stay_s, price_s)))

    def chance(self, now_s: float, idle_s: float, within_s: float) -> float | None:
        """The chance that a gap that has lasted for `idle_s` ends within that many seconds more; None as above."""
        weights = self._at(now_s)
        if weights is None:
            return None
        open_weight = sum(weight for bucket, weight in weights.items() if RATIO**bucket > idle_s)
        ending = sum(weight for bucket, weight in weights.items() if idle_s < RATIO**bucket <= idle_s + within_s)
        return ending / (open_weight + 1)

    def _at(self, now_s: float) -> dict[int, float] | None:
        """Weights by bucket of the narrowest span of time of which enough is known."""
        hour = hour_of(now_s)
        for hours in (range(hour, hour + 1), range(hour % 24, HOURS, 24), range(HOURS)):
            pooled: dict[int, float] = {}
            for each in hours:
                for bucket, weight in self._weights.get(each, {}).items():
                    pooled[bucket] = pooled.get(bucket, 0.0) + weight
            if sum(pooled.values()) >= ENOUGH * 0.9:  # old ones have faded a little
                return pooled
        return None

    def written(self) -> dict[str, dict[str, float]]:
        """All of it, for JSON."""
        return {
            str(hour): {str(bucket): round(weight, 3) for bucket, weight in weights.items() if weight > 0.01}
            for hour, weights in self._weights.items()
        }

    @classmethod
    def read(cls, table: Mapping[str, Mapping[str, float]]) -> Gaps:
        """Reads what was `written`. Raises an Exception where it is something else."""
        read = {
            int(hour) % HOURS: {min(BUCKETS, int(bucket)): float(weight) for bucket, weight in weights.items()}
            for hour, weights in table.items()
        }
        if not all(0 <= weight < math.inf for weights in read.values() for weight in weights.values()):
            raise ValueError("gaps have weights that are none")
        return cls(read)


def _with_unseen(weights: Mapping[int, float], least_s: float, most_s: float) -> dict[int, float]:
    first, last = _bucket(least_s), _bucket(UNSEEN_TIMES * most_s)
    each = UNSEEN / (last - first + 1)
    return {
        bucket: weights.get(bucket, 0.0) + (each if first <= bucket <= last else 0.0)
        for bucket in {*weights, *range(first, last + 1)}
    }


def _bucket(gap_s: float) -> int:
    return min(BUCKETS, max(0, math.ceil(math.log(max(gap_s, 1.0), RATIO))))


def _costs(weights: Mapping[int, float], stay_s: float, price_s: float) -> Iterator[float]:
    for bucket, weight in weights.items():
        gap_s = RATIO**bucket
        yield weight * (gap_s if gap_s <= stay_s else stay_s + price_s)
