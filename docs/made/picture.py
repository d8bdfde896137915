"""docs/images/observability-*.png: panels of the overview, drawn of what a Prometheus has scraped.

    python -m docs.made.picture http://127.0.0.1:9090 --minutes 6

Grafana draws the same from the same queries.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter, MinuteLocator
from matplotlib.patches import Patch

from docs.made.panels import DASHBOARDS, STATES, Panel, Query
from docs.made.queries import INTERVAL

FOLDER = Path(__file__).parents[1] / "images"
STEP_S = 2
WINDOW = "60s"
MOST = 6
"""Series of a panel: those that are largest at any time."""
SHORT = 18
"""Characters of a legend of which three have room beside each other."""

TITLES = (
    ("Where the time of a request goes", "Requests by outcome", "Refusals by reason"),
    ("Engines over time",),
    ("Cold hits", "Calls that wait", "Cost an hour"),
)
"""What is drawn, row by row."""

ROWS = ((0.76, 0.205), (0.375, 0.28), (0.085, 0.205))
LEFT, RIGHT, GAP = 0.155, 0.985, 0.045
"""Places of rows and columns, as shares of the picture."""

THEMES: Mapping[str, Mapping[str, str]] = {
    "light": {"page": "#ffffff", "panel": "#f7f8fa", "ink": "#24292e", "grid": "#e1e4e8"},
    "dark": {"page": "#0d1117", "panel": "#161b22", "ink": "#d0d7de", "grid": "#30363d"},
}
LINES = ("#5794f2", "#ff9830", "#73bf69", "#b877d9", "#e02f44", "#f2cc0c", "#37a2b4", "#a16f4a")

Series = list[tuple[str, list[Any], list[float]]]
"""By legend: when, and how much."""


def main() -> None:
    """Draws both themes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("prometheus", help="its address")
    parser.add_argument("--minutes", type=float, default=6, help="how much of the past is drawn")
    parser.add_argument("--until", type=float, default=time.time(), help="seconds since 1970 at which it ends")
    arguments = parser.parse_args()
    panels = {panel.title: panel for row in DASHBOARDS["overview"][1] for panel in row.panels}
    span = arguments.until - 60 * arguments.minutes, arguments.until
    chosen = [title for row in TITLES for title in row]
    data = {title: _series(arguments.prometheus, panels[title], *span) for title in chosen}
    for theme, colours in THEMES.items():
        draw(panels, data, colours, FOLDER / f"observability-{theme}.png")


def draw(panels: Mapping[str, Panel], data: Mapping[str, Series], theme: Mapping[str, str], file: Path) -> None:
    """One picture of all panels."""
    figure = pyplot.figure(figsize=(15, 10.5), facecolor=theme["page"])
    for (bottom, height), titles in zip(ROWS, TITLES, strict=True):
        width = (RIGHT - LEFT + GAP) / len(titles) - GAP
        for column, title in enumerate(titles):
            axes = figure.add_axes((LEFT + column * (width + GAP), bottom, width, height))
            _dress(axes, panels[title], theme)
            if panels[title].kind == "state-timeline":
                _bands(axes, data[title], theme)
            else:
                _lines(axes, panels[title], data[title], theme)
    figure.savefig(file, dpi=80, facecolor=theme["page"])
    pyplot.close(figure)


def _dress(axes: Axes, panel: Panel, theme: Mapping[str, str]) -> None:
    units = {"s": "s", "reqps": "a second", "currencyEUR": "EUR", "bytes": "bytes"}
    unit = f"  ({units[panel.unit]})" if panel.unit in units else ""
    axes.set_title(panel.title + unit, loc="left", color=theme["ink"], fontsize=12, fontweight="bold")
    axes.set_facecolor(theme["panel"])
    axes.tick_params(colors=theme["ink"], labelsize=9, length=0)
    axes.grid(color=theme["grid"], linewidth=0.8)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axis: Any = axes.xaxis
    axis.set_major_locator(MinuteLocator())  # type: ignore[no-untyped-call]
    axis.set_major_formatter(DateFormatter("%H:%M"))  # type: ignore[no-untyped-call]


def _lines(axes: Axes, panel: Panel, series: Series, theme: Mapping[str, str]) -> None:
    series = sorted((line for line in series if any(line[2])), key=lambda line: max(line[2]))[-MOST:]
    known = dict(panel.colours)
    colours = [known.get(name, LINES[index % len(LINES)]) for index, (name, _, _) in enumerate(series)]
    if panel.stacked and series:
        times = sorted({at for _, when, _ in series for at in when})
        rows = [[dict(zip(when, values, strict=True)).get(at, 0.0) for at in times] for _, when, values in series]
        axes.stackplot(times, rows, labels=[name for name, _, _ in series], colors=colours, alpha=0.8, linewidth=0)
    else:
        for (name, when, values), colour in zip(series, colours, strict=True):
            axes.plot(when, values, label=name, color=colour, linewidth=1.8)
    axes.set_ylim(bottom=0)
    columns = 3 if max(len(name) for name, _, _ in series) < SHORT else 2
    axes.legend(
        loc="upper left", bbox_to_anchor=(-0.02, -0.08), ncols=columns, fontsize=8.5, frameon=False, handlelength=1,
        columnspacing=1.2, labelcolor=theme["ink"],
    )  # fmt: skip
    axes.margins(x=0)


def _bands(axes: Axes, series: Series, theme: Mapping[str, str]) -> None:
    """A bar for each engine that has woken, of a colour for each state."""
    awake = [line for line in sorted(series, reverse=True) if any(line[2])]
    colours = list(STATES.values())
    for row, (_, when, values) in enumerate(awake):
        starts = [index for index in range(len(values)) if index == 0 or values[index] != values[index - 1]]
        for start, end in zip(starts, [*starts[1:], len(values) - 1], strict=True):
            axes.barh(row, when[end] - when[start], left=when[start], height=0.7, color=colours[int(values[start])])
    axes.set_yticks(range(len(awake)), [name for name, _, _ in awake])
    axes.grid(axis="y", visible=False)
    axes.margins(x=0)
    shown = [Patch(color=colour) for colour in colours]
    axes.legend(
        shown, list(STATES), loc="lower right", bbox_to_anchor=(1, 1), ncols=len(shown), frameon=False, fontsize=9,
        labelcolor=theme["ink"], borderaxespad=0.2,
    )  # fmt: skip


def _series(address: str, panel: Panel, start_s: float, end_s: float) -> Series:
    return [line for query in panel.queries for line in _of_query(address, query, start_s, end_s)]


def _of_query(address: str, query: Query, start_s: float, end_s: float) -> Series:
    parameters: dict[str, Any] = {"query": query.expression.replace(INTERVAL, WINDOW), "step": STEP_S}
    parameters |= {"start": start_s, "end": end_s}
    reply = httpx.get(f"{address}/api/v1/query_range", params=parameters, timeout=30).raise_for_status()
    lines = []
    for found in reply.json()["data"]["result"]:
        name = query.legend
        for label, value in found["metric"].items():
            name = name.replace(f"{{{{{label}}}}}", value)
        when = [datetime.fromtimestamp(at, UTC) for at, _ in found["values"]]
        lines.append((name, when, [float(text) for _, text in found["values"]]))
    return lines


if __name__ == "__main__":
    main()
