"""Counts and measures `contract.telemetry` in a process until `autoscaling.exporter` collects it.

Counters are summed here and go out every EXPORT_S; an observation of a histogram goes out at once. Nothing that decides
reads what was exported: that is older, and misses what is at zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from contract.telemetry import Metric

EXPORT_S = 5.0
"""As often as Serve's own metrics go out (RAY_SERVE_METRICS_EXPORT_INTERVAL_MS in configs/ray.env)."""

Labels = tuple[str, ...]
Series = tuple[Metric, Labels]
Sample = tuple[Metric, Labels, float]
Send = Callable[[Metric, Labels, float], None]


def nowhere(metric: Metric, labels: Labels, value: float) -> None:
    """Metrics of processes that export none: tests, and callers of handles."""


class Metrics:
    """The metrics of one process. Used in one event loop.

    Attributes:
        totals: values of each counter since the process began; code that counts adds to them.
        observe: takes a value of a histogram, which leaves at once.
    """

    def __init__(self, send: Send = nowhere) -> None:
        self.totals: defaultdict[Series, float] = defaultdict(int)
        self._sent: dict[Series, float] = {}
        self.observe = send

    def export(self, gauges: Iterable[Sample] = ()) -> None:
        """Sends what the counters have gained since the last time, and `gauges` as they are."""
        for series, total in self.totals.items():
            if gained := total - self._sent.get(series, 0):
                self.observe(*series, gained)
        self._sent = dict(self.totals)
        for sample in gauges:
            self.observe(*sample)
