"""Detects stalled work by one rule: the times that the same work took before.

    with stalls.watching("speak"):
        item = await anext(items)
    stalls.check("the engine makes no progress")

Work has stalled when nothing was finished for ten times as long as the longest of the last hundred operations took,
within two bounds. Nothing under way is never a stall, and neither is work of which a part comes now and then.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable

FACTOR = 10.0
"""Factor above the longest of the last operations that one may take: long texts come after short ones."""

RECENT = 100
"""Operations that are remembered."""


class Stalled(RuntimeError):
    """Work is under way, and nothing of it was finished for longer than is allowed."""


class StallDetector:
    """The operations that are under way, and whether they go on. Safe to use from any thread.

    Args:
        least_s: seconds of silence that are always allowed.
        most_s: seconds of silence that are never exceeded, and allowed until something was measured.
        each_s: seconds that no operation may take, whatever others do; for work that waits for nothing else.
        now: a clock that never goes back, in seconds.

    Attributes:
        started_s: time at which each operation under way began, or at which work inside all of them was last seen.
        progressed_s: time at which an operation was last finished.
    """

    def __init__(
        self, least_s: float, most_s: float, each_s: float = math.inf, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.least_s, self.most_s, self.each_s = least_s, most_s, each_s
        self.started_s: dict[object, float] = {}
        self.progressed_s = -math.inf
        self._now = now
        self._sizes: dict[object, float] = {}
        self._recent: deque[float] = deque(maxlen=RECENT)
        """Seconds per unit of size."""

    def begin(self, operation: object, size: float = 1.0) -> None:
        """`operation` is under way. Where it was already, its start stays. It takes longer in proportion to `size`."""
        self._sizes.setdefault(operation, size)
        self.started_s.setdefault(operation, self._now())

    def end(self, operation: object, finished: bool = True) -> None:
        """It is not any more. One that was left before it was `finished` says nothing about the engine."""
        start, size = self.started_s.pop(operation, None), self._sizes.pop(operation, 1.0)
        if finished:
            self.progressed_s = self._now()
        if finished and start is not None:
            self._recent.append((self.progressed_s - start) / size)

    def watching(self, name: str = "", size: float = 1.0) -> Watch:
        """An operation for as long as a block over it runs, and again in each further block."""
        return Watch(self, (name, object()), size)

    def went_on(self, at_s: float) -> None:
        """Something inside the operations went on until `at_s`, by the same clock."""
        for operation, start_s in self.started_s.copy().items():
            if start_s < at_s and operation in self.started_s:
                self.started_s[operation] = at_s

    @property
    def active_s(self) -> float:
        """Instant at which something was last under way, or finished: now if something is."""
        return self._now() if self.started_s else self.progressed_s

    @property
    def limit_s(self) -> float:
        """Seconds of silence that are allowed to what is under way."""
        longest = max(self._recent.copy(), default=None)
        if longest is None:
            return self.most_s
        size = max(self._sizes.copy().values(), default=1.0)
        return min(self.most_s, max(self.least_s, FACTOR * longest * size))

    @property
    def age_s(self) -> float:
        """Seconds since the oldest operation began; 0 where none is under way."""
        oldest_s = min(self.started_s.copy().values(), default=None)
        return 0.0 if oldest_s is None else self._now() - oldest_s

    @property
    def silence_s(self) -> float:
        """The same, or since something was finished if that is less."""
        return min(self.age_s, self._now() - self.progressed_s)

    @property
    def at_work(self) -> Counter[str]:
        """Number of operations under way, by name."""
        return Counter(operation[0] for operation in self.started_s.copy() if isinstance(operation, tuple))

    def check(self, message: str) -> None:
        """Raises Stalled with `message` if nothing makes progress, or one operation takes longer than `each_s`."""
        if self.silence_s > self.limit_s or self.age_s > self.each_s:
            raise Stalled(message)


class Watch:
    """An operation that is under way within `with`. An error finishes it, leaving it does not."""

    __slots__ = ("_detector", "_operation", "_size")

    def __init__(self, detector: StallDetector, operation: tuple[str, object], size: float) -> None:
        self._detector, self._operation, self._size = detector, operation, size

    def __enter__(self) -> None:
        # As `begin` does, for what cannot be under way already: a stream does this for each of its items.
        detector = self._detector
        detector._sizes[self._operation] = self._size
        detector.started_s[self._operation] = detector._now()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._detector.end(self._operation, kind is None or issubclass(kind, Exception))
