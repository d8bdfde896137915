"""Where the seconds of a start go, by what Serve's controller writes about it.

asked       from the client's request until the controller starts a replica
process     until Ray's worker runs our code: Python, Ray, Serve
loading     imports, weights, what an engine does before it can answer
answer      until the client has the first of it
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from pathlib import Path

STARTING = re.compile(r"INFO (\S+ \S+) controller \d+ -- Starting Replica\(id='(\w+)', deployment='([\w.-]+)'")
STARTED = re.compile(
    r"Replica\(id='(\w+)'.* started successfully .* after ([\d.]+)s .* initial health check took ([\d.]+)s"
)


@dataclass(frozen=True, slots=True)
class Phases:
    wait: float
    process: float
    loading: float
    answer: float

    @property
    def total(self) -> float:
        return self.wait + self.process + self.loading + self.answer


def newest(session: Path, deployment: str, requested_at: float, total_s: float) -> Phases | None:
    """Of the last start of a deployment, as Ray's folder tells it; None before it does. `requested_at` is Unix time."""
    log = "".join(file.read_text() for file in sorted(session.glob("logs/serve/controller_*.log")))
    events = [(match[1], match[2]) for match in STARTING.finditer(log) if match[3] == deployment]
    at, replica = events[-1] if events else ("", "")
    started = next((match for match in STARTED.finditer(log) if match[1] == replica), None)
    if not started:
        return None
    wait = datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f").timestamp() - requested_at
    if wait < 0:
        return None
    until_ready, loading = float(started[2]), float(started[3])
    return Phases(wait, until_ready - loading, loading, max(0.0, total_s - wait - until_ready))


def median(starts: Sequence[Phases]) -> Phases:
    return Phases(*(statistics.median(values) for values in zip(*map(astuple, starts), strict=True)))
