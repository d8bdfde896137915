"""docs/observability.md: every metric, how it is scraped, what the dashboards show, and what to do at each alert."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from contract.telemetry import METRICS
from docs.made.alerts import ALERTS, Alert
from docs.made.blocks import filled
from docs.made.panels import DASHBOARDS, Row


def page() -> str:
    """The whole page."""
    metrics = (_cells(f"`{row.exported}`", row.kind, ", ".join(row.labels), row.help) for row in METRICS.values())
    dashboards = (_cells(f"`{name}.json`", ", ".join(map(_heading, rows))) for name, rows in DASHBOARDS.items())
    return filled(
        "observability.md",
        metrics=_table(("metric", "kind", "labels", "what it is"), metrics),
        dashboards=_table(("file", "rows of panels"), dashboards),
        alerts="".join(map(_alert, ALERTS)),
    )


def _table(head: Sequence[str], rows: Iterable[str]) -> str:
    return "".join([_cells(*head), "|---" * len(head) + "|\n", *rows])


def _cells(*cells: str) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|\n"


def _heading(row: Row) -> str:
    return f"one for each {row.repeat}" if row.repeat else row.title


def _alert(alert: Alert) -> str:
    summary = re.sub(r" \{\{ \$labels\.\w+ \}\}", "", alert.summary).replace("{{ $value }} bills", "Bills")
    return f"\n### {alert.name}\n\n**{alert.severity}**, after {_words(alert.lasts)}. {summary} {alert.action}\n"


def _words(duration: str) -> str:
    minutes = int(duration.removesuffix("m"))
    return "a minute" if minutes == 1 else f"{minutes} minutes"
