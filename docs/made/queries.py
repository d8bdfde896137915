"""Queries of Prometheus, written by rows of `contract.telemetry`: none asks for a name or a label that is not there."""

from __future__ import annotations

from contract.telemetry import Metric

INTERVAL = "$__rate_interval"
"""Grafana puts in a window that fits the picture and the interval of scrapes."""


def series(metric: Metric, suffix: str = "", /, **labels: str) -> str:
    """The series of a metric, narrowed to `labels`; `~` before a value makes it a pattern.

    Raises ValueError for a label that the metric does not have.
    """
    check(metric, *labels)
    values = (
        f'{name}=~"{value[1:]}"' if value.startswith("~") else f'{name}="{value}"' for name, value in labels.items()
    )
    narrowed = ", ".join(values)
    return f"{metric.exported}{suffix}" + (f"{{{narrowed}}}" if narrowed else "")


def now(metric: Metric, *by: str, how: str = "sum", **labels: str) -> str:
    """A gauge as it is, over all processes."""
    return f"{how}{_by(metric, by)} ({series(metric, **labels)})"


def total(metric: Metric, *by: str, **labels: str) -> str:
    """What a counter has counted so far, or how many observations a histogram has taken: what came once has no rate."""
    return f"sum{_by(metric, by)} ({series(metric, _counted(metric), **labels)})"


def rate(metric: Metric, *by: str, window: str = INTERVAL, **labels: str) -> str:
    """What a counter gains, or how many observations a histogram takes, in a second."""
    return f"sum{_by(metric, by)} (rate({series(metric, _counted(metric), **labels)}[{window}]))"


def _counted(metric: Metric) -> str:
    """What the name of the series that counts ends with."""
    return "_count" if metric.kind == "histogram" else ""


def quantile(share: float, metric: Metric, *by: str, window: str | None = INTERVAL, **labels: str) -> str:
    """The value that so large a share of the observations of a histogram stays below: of all where `window` is None."""
    check(metric, *by)
    buckets, names = series(metric, "_bucket", **labels), ", ".join(("le", *by))
    return f"histogram_quantile({share}, sum by ({names}) ({f'rate({buckets}[{window}])' if window else buckets}))"


def check(metric: Metric, *labels: str) -> None:
    """Raises ValueError for labels that the metric does not have."""
    if missing := set(labels) - {*metric.labels}:
        raise ValueError(f"{metric.name} has no labels {sorted(missing)}; it has {metric.labels}")


def _by(metric: Metric, by: tuple[str, ...]) -> str:
    check(metric, *by)
    return f" by ({', '.join(by)})" if by else ""
