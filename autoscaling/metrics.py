"""What a process counts and measures of `contract.telemetry`, until somebody takes it: `autoscaling.exporter`.

Counters are summed here and go out every EXPORT_S; an observation of a histogram goes out at once. Nothing that decides
reads what was exported: that is older, and misses what is at zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from contract.telemetry import Metric

EXPORT_S = 5.0
"""As often as Serve's own metrics go out (RAY_SERVE_METRICS_EXPORT_INTERVAL_MS in configs/ray.env)."""

Labels = tuple[str, ...]
Series = tuple[Metric, Labels]
Sample = tuple[Metric, Labels, float]
Send = Callable[[Metric, Labels, float], None]


def nowhere(metric: Metric, labels: Labels, value: float) -> None:
    """Where nobody exports: tests, and callers of handles."""


class Metrics:
    """The metrics of one process. `send` takes what leaves it. Used in one event loop.

    Attributes:
        totals: of each counter since the process began.
    """

    def __init__(self, send: Send = nowhere) -> None:
        self.totals: Counter[Series] = Counter()
        self._sent: Counter[Series] = Counter()
        self._send = send

    def add(self, metric: Metric, labels: Labels, amount: float = 1) -> None:
        """Adds to a counter."""
        self.totals[metric, labels] += amount  # type: ignore[assignment]  # seconds are no whole numbers

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        """Takes a value of a histogram."""
        self._send(metric, labels, value)

    def export(self, gauges: Iterable[Sample] = ()) -> None:
        """Sends what the counters have gained since the last time, and `gauges` as they are."""
        for series, total in self.totals.items():
            if gained := total - self._sent[series]:
                self._send(*series, gained)
        self._sent = self.totals.copy()
        for sample in gauges:
            self._send(*sample)
