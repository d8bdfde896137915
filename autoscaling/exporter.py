"""The way of metrics to Ray, which each node's agent exports for Prometheus."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from ray.util.metrics import Counter, Gauge, Histogram

from autoscaling.metrics import Labels
from contract.telemetry import METRICS, Kind, Metric

Record = Callable[..., None]

RECORDERS: dict[Kind, Callable[[Metric], Record]] = {
    "counter": lambda metric: Counter(metric.name, metric.help, metric.labels).inc,
    "gauge": lambda metric: Gauge(metric.name, metric.help, metric.labels).set,
    "histogram": lambda metric: Histogram(metric.name, metric.help, list(metric.buckets), metric.labels).observe,
}


class RayInstruments:
    """An instrument of Ray for each row. To be made once in a process of Ray; it is a `Send` of `Metrics`."""

    def __init__(self, metrics: Iterable[Metric] = METRICS.values()) -> None:
        self._record = {metric: RECORDERS[metric.kind](metric) for metric in metrics}

    def __call__(self, metric: Metric, labels: Labels, value: float) -> None:
        """Hands a value to Ray. One that Ray does not take is lost: nothing fails for it."""
        tags = dict(zip(metric.labels, labels, strict=True))
        with contextlib.suppress(ValueError):
            self._record[metric](value, tags)
