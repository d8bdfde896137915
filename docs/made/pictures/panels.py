"""Panels of the overview, drawn of `panels.json`: what a Prometheus has scraped of a graph for some minutes.

    python -m docs.made.pictures.panels http://127.0.0.1:9090 --minutes 4

This records them anew, by the queries of the dashboard; `make docs` draws them.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from contract.telemetry import EngineState
from docs.made.panels import DASHBOARDS, INTERVAL, STATES, Panel
from docs.made.pictures.style import BLUE, GREEN, INK, LINE, ORANGE, PURPLE, WAY, chart, svg

RECORDING = Path(__file__).with_name("panels.json")
STEP_S = 2
WINDOW = "60s"
MOST = 5
"""Series of a panel: those that are largest at any time."""

PANELS = {panel.title: panel for row in DASHBOARDS["overview"] for panel in row.panels}
TITLES = ("Where the time of a request goes", "Requests by outcome", "Engines over time", "Calls that wait")
HEIGHTS = (1, 1, 1.5, 1)
UNITS = {"s": "s", "reqps": "a second"}
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, WAY)
BANDS = {
    EngineState.COLD: LINE,
    EngineState.STARTING: ORANGE,
    EngineState.READY: GREEN,
    EngineState.BUSY: BLUE,
    EngineState.FAILED: PURPLE,
}

Points = list[tuple[float, float]]
"""Minutes since the beginning, and values."""
Series = dict[str, Points]
"""By legend."""


def panels() -> str:
    """Where time goes, how requests end, what engines do, and who waits, over some minutes."""
    recording: dict[str, Series] = json.loads(RECORDING.read_text("utf-8"))
    with chart(780, len(TITLES), 1, sharex=True, height_ratios=HEIGHTS) as (figure, rows):
        for (axes,), title in zip(rows, TITLES, strict=True):
            panel, series = PANELS[title], recording[title]
            axes.set_title(f"{title}, {UNITS[panel.unit]}" if panel.unit in UNITS else title)
            axes.margins(x=0)
            (_bands if panel.kind == "state-timeline" else _lines)(axes, series, stacked=panel.stacked)
        rows[-1][0].set_xlabel("minutes")
        awake = ", ".join(_awake(recording["Engines over time"]))
        description = (
            "Four panels over minutes: the seconds of a mean request by part, requests a second by outcome, a band of "
            f"states for each of the engines {awake}, and the calls that wait for each engine."
        )
        return svg(figure, "What the dashboard shows of a graph", description)


def _lines(axes: Any, series: Series, *, stacked: bool) -> None:
    largest = sorted(series, key=lambda name: max(value for _, value in series[name]))[-MOST:]
    times = sorted({at for name in largest for at, _ in series[name]})
    values = [[dict(series[name]).get(at, 0.0) for at in times] for name in largest]
    if stacked:
        axes.stackplot(times, values, labels=largest, colors=COLOURS, alpha=0.85, linewidth=0)
    else:
        for name, line, colour in zip(largest, values, COLOURS, strict=False):
            axes.plot(times, line, label=name, color=colour)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", handlelength=1, fontsize=11, labelspacing=0.2)


def _bands(axes: Any, series: Series, *, stacked: bool) -> None:
    """A bar for each engine that has woken, of a colour for each state."""
    del stacked
    names, states = _awake(series), list(BANDS)
    for row, name in enumerate(names):
        points = series[name]
        starts = [number for number, point in enumerate(points) if not number or point[1] != points[number - 1][1]]
        for start, end in zip(starts, [*starts[1:], len(points) - 1], strict=True):
            width = points[end][0] - points[start][0]
            axes.barh(row, width, 0.7, left=points[start][0], color=BANDS[states[int(points[start][1])]])
    axes.set_yticks(range(len(names)), labels=names, color=INK, fontsize=11)
    axes.set_ylim(-0.5, len(names) + 0.3)
    axes.grid(axis="y", visible=False)
    for number, (state, colour) in enumerate(BANDS.items()):
        axes.text(0.2 * number, 0.99, f"■ {state}", color=colour, transform=axes.transAxes, va="top", fontsize=11)


def _awake(series: Series) -> list[str]:
    return [name for name in sorted(series, reverse=True) if any(value for _, value in series[name])]


# --- the recording ---------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Records what is drawn."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("prometheus", help="its address")
    parser.add_argument("--minutes", type=float, default=4, help="how much of the past is recorded")
    parser.add_argument("--until", type=float, default=time.time(), help="seconds since 1970 at which it ends")
    options = parser.parse_args(arguments)
    assert list(BANDS) == list(STATES), "values of bands are places in STATES"
    span_s = options.until - 60 * options.minutes, options.until
    recording = {title: _recorded(options.prometheus, PANELS[title], *span_s) for title in TITLES}
    RECORDING.write_text(json.dumps(recording, separators=(",", ":")).replace("},", "},\n") + "\n", "utf-8")


def _recorded(address: str, panel: Panel, start_s: float, end_s: float) -> Series:
    series: Series = {}
    for query in panel.queries:
        parameters: dict[str, Any] = {"query": query.expression.replace(INTERVAL, WINDOW), "step": STEP_S}
        parameters |= {"start": start_s, "end": end_s}
        reply = httpx.get(f"{address}/api/v1/query_range", params=parameters, timeout=30).raise_for_status()
        for result in reply.json()["data"]["result"]:
            name = query.legend
            for label, value in result["metric"].items():
                name = name.replace(f"{{{{{label}}}}}", value)
            points = [(round((at - start_s) / 60, 3), float(f"{float(text):.4g}")) for at, text in result["values"]]
            points = [point for point in points if math.isfinite(point[1])]  # nothing by nothing
            if any(value for _, value in points):
                series[name] = points
    return series


if __name__ == "__main__":
    main()
