"""The dashboards in cluster/observability: rows of panels, each with its queries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.telemetry import EngineState

FOLDER = Path(__file__).parents[2] / "cluster/observability"
INTERVAL = "$__rate_interval"
"""Grafana puts in a window that fits the picture and the interval of scrapes."""


@dataclass(frozen=True, slots=True)
class Query:
    """Expression for Prometheus. `legend` names its series by their labels, as `{{engine}}`."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. Its `kind` is Grafana's: `state-timeline` shows numbers as bands, `timeseries` as lines."""

    title: str
    kind: str
    unit: str
    queries: tuple[Query, ...]
    stacked: bool


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading; one such row for each value of the variable `repeat`, if there is one."""

    title: str
    repeat: str | None
    panels: tuple[Panel, ...]


def _rows(panels: list[dict[str, Any]]) -> Iterator[Row]:
    heads = [place for place, panel in enumerate(panels) if panel["type"] == "row"]
    for begin, end in zip(heads, [*heads[1:], len(panels)], strict=True):
        head = panels[begin]
        yield Row(head["title"], head.get("repeat"), tuple(map(_panel, panels[begin + 1 : end])))


def _panel(panel: dict[str, Any]) -> Panel:
    defaults = panel["fieldConfig"]["defaults"]
    stacked = defaults["custom"].get("stacking", {}).get("mode") == "normal"
    queries = tuple(Query(target["expr"], target["legendFormat"]) for target in panel["targets"])
    return Panel(panel["title"], panel["type"], defaults.get("unit", "none"), queries, stacked)


BOARDS: dict[str, dict[str, Any]] = {
    name: json.loads((FOLDER / f"{name}.json").read_text("utf-8")) for name in ("overview", "capabilities", "gpus")
}
"""Dashboards as Grafana imports them."""
DASHBOARDS = {name: tuple(_rows(board["panels"])) for name, board in BOARDS.items()}

(_BANDS,) = (panel for panel in BOARDS["overview"]["panels"] if panel["type"] == "state-timeline")
(_MAPPING,) = _BANDS["fieldConfig"]["defaults"]["mappings"]
STATES = tuple(EngineState(shown["text"]) for _, shown in sorted(_MAPPING["options"].items()))
"""States of engines by the numbers of their bands. Where ingress processes disagree, the last one is shown."""

VLLM = sorted(set(re.findall(r"ray_vllm_(\w+?)(?:_total)?\b", json.dumps(BOARDS["gpus"]))))
"""Metrics of vLLM that a dashboard shows, by vLLM's names."""
