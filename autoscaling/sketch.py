"""How long something takes, learned from how long it took: a histogram of logarithmic buckets in which old times fade.

The ingress replicas of one database learn together: each hands on what it has seen, and goes on from what all have.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import deque
from itertools import accumulate, pairwise

LEAST_S = 0.001
RATIO = 1.1
"""Of the upper bound of a bucket to its lower one: a quantile is off by 5 % at most."""
TAIL = 4.0
"""Beyond the longest time that was seen, chances fall with this power of the time."""


class Sketch:
    """Quantiles of a time, in seconds. Used in one event loop.

    Among n times, the next one is longer than all of them with the chance 1 / (n + 1): where little was seen, quantiles
    say so.

    Args:
        memory: about so many of the last times count.
        prior_s: what is expected until one was seen; None: nothing is.
    """

    def __init__(self, memory: int, prior_s: float | None = None) -> None:
        self._keep = 1 - 1 / memory
        self._prior_s = prior_s
        self._weights: dict[int, float] = {}
        """By bucket; the newest time weighs 1."""
        self._unsaved: deque[float] = deque(maxlen=4 * memory)
        """Times that `merged` has not taken over yet."""
        self._bounds: tuple[list[float], list[float]] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is expected at all."""
        return not self._weights and self._prior_s is None

    def add(self, seconds: float) -> None:
        """Takes a time."""
        self._unsaved.append(seconds)
        self._count(seconds)

    def quantile(self, share: float) -> float:
        """The time that `share` of all are shorter than, 0 to 1. Raises ValueError where the sketch is empty."""
        cuts, chances = self._table()
        if share >= chances[-1]:
            return float(cuts[-1] * ((1 - chances[-1]) / max(1e-9, 1 - share)) ** (1 / TAIL))
        place = bisect_right(chances, share)
        low, high = chances[place - 1], chances[place]
        return cuts[place - 1] + (cuts[place] - cuts[place - 1]) * (share - low) / (high - low)

    def mean(self) -> float:
        """The mean of most times: the longest are left out. Raises ValueError where the sketch is empty."""
        return sum(self.quantile((number + 0.5) / 20) for number in range(20)) / 20

    def left(self, passed_s: float, share: float) -> float:
        """The same of what is left of a time that has lasted for `passed_s` already."""
        if passed_s <= 0:
            return self.quantile(share)
        chance = self._chance(passed_s)
        return max(0.0, self.quantile(chance + (1 - chance) * share) - passed_s)

    def merged(self, text: str | None) -> str:
        """`text`, which another sketch has written, with the times that this one has `unsaved`."""
        common = Sketch(round(1 / (1 - self._keep)))
        common._weights = _read(text)
        for seconds in self._unsaved:
            common._count(seconds)
        weights = {str(bucket): round(weight, 4) for bucket, weight in sorted(common._weights.items()) if weight > 1e-4}
        return json.dumps(weights, separators=(",", ":"))

    def adopt(self, text: str, saved: int) -> None:
        """Goes on from `text`, in which the first `saved` of `unsaved` times are counted."""
        self._weights = _read(text)
        for _ in range(min(saved, len(self._unsaved))):
            self._unsaved.popleft()
        self._bounds = None
        for seconds in self._unsaved:
            self._count(seconds)

    @property
    def unsaved(self) -> int:
        """How many times `merged` would add."""
        return len(self._unsaved)

    def _count(self, seconds: float) -> None:
        for bucket in self._weights:
            self._weights[bucket] *= self._keep
        bucket = max(0, math.ceil(math.log(max(seconds, LEAST_S) / LEAST_S, RATIO)))
        self._weights[bucket] = self._weights.get(bucket, 0.0) + 1
        self._bounds = None

    def _table(self) -> tuple[list[float], list[float]]:
        """Times, ascending, and the chance that one is no longer than each. The last chance is below 1."""
        if self._bounds is None:
            if not self._weights:
                if self._prior_s is None:
                    raise ValueError("nothing is known of this time")
                return [self._prior_s, self._prior_s], [0.0, 0.5]
            cuts, weights = [0.0], [0.0]
            for bucket, weight in sorted(self._weights.items()):
                low, high = LEAST_S * RATIO ** (bucket - 1), LEAST_S * RATIO**bucket
                if low > cuts[-1] * (1 + 1e-9):
                    cuts, weights = [*cuts, low], [*weights, 0.0]
                cuts, weights = [*cuts, high], [*weights, weight]
            whole = sum(weights) + 1
            self._bounds = cuts, [total / whole for total in accumulate(weights)]
        return self._bounds

    def _chance(self, seconds: float) -> float:
        """The chance that a time is no longer than `seconds`."""
        cuts, chances = self._table()
        if seconds >= cuts[-1]:
            return float(1 - (1 - chances[-1]) * (cuts[-1] / seconds) ** TAIL)
        for (low, high), (before, after) in zip(pairwise(cuts), pairwise(chances), strict=True):
            if seconds <= low:
                return before
            if seconds < high:
                return before + (after - before) * (seconds - low) / (high - low)
        return chances[-1]


def _read(text: str | None) -> dict[int, float]:
    return {int(bucket): float(weight) for bucket, weight in json.loads(text).items()} if text else {}
