"""Where the seconds of a start go, by what Serve's controller writes about it, and a picture of that.

asked       from the client's request until the controller starts a replica
process     until Ray's worker runs our code: Python, Ray, Serve
loading     imports, weights, what an engine does before it can answer
answer      until the client has the first of it
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

STARTING = re.compile(r"INFO (\S+ \S+) controller \d+ -- Starting Replica\(id='(\w+)', deployment='([\w.-]+)'")
STARTED = re.compile(
    r"Replica\(id='(\w+)'.* started successfully .* after ([\d.]+)s .* initial health check took ([\d.]+)s"
)


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds of one start."""

    asked: float
    process: float
    loading: float
    answer: float

    @property
    def total(self) -> float:
        """As the client sees it."""
        return self.asked + self.process + self.loading + self.answer


def newest(session: Path, deployment: str, requested_at: float, total_s: float) -> Phases | None:
    """Of the last start of a deployment, as Ray's folder tells it; None before it does. `requested_at` is Unix time."""
    log = "".join(file.read_text() for file in sorted(session.glob("logs/serve/controller_*.log")))
    told = [(match[1], match[2]) for match in STARTING.finditer(log) if match[3] == deployment]
    at, replica = told[-1] if told else ("", "")
    started = next((match for match in STARTED.finditer(log) if match[1] == replica), None)
    if not started:
        return None
    asked = datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f").timestamp() - requested_at
    if asked < 0:
        return None
    until_ready, loading = float(started[2]), float(started[3])
    return Phases(asked, until_ready - loading, loading, max(0.0, total_s - asked - until_ready))


def median(starts: Sequence[Phases]) -> Phases:
    """Of each phase by itself."""
    return Phases(*(statistics.median(values) for values in zip(*map(astuple, starts), strict=True)))


def plot(rows: Mapping[str, Mapping[str, Phases]], file: Path) -> None:
    """A bar for each engine and way to start, of its phases. `rows` are by engine, and then by way."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = [(f"{engine}, {way}", phases) for engine, ways in rows.items() for way, phases in ways.items()]
    figure, axes = pyplot.subplots(figsize=(9, 0.4 * len(bars) + 1.2))
    left = [0.0] * len(bars)
    for index, phase in enumerate(fields(Phases)):
        widths = [astuple(phases)[index] for _, phases in bars]
        axes.barh([name for name, _ in bars], widths, left=left, label=phase.name)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("seconds from a request at zero replicas to its first answer")
    legend: dict[str, Any] = {"frameon": False, "ncols": len(fields(Phases))}
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), **legend)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(file, dpi=150)
