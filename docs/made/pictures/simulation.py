"""Pictures of what `python -m autoscaling.simulate --json FILE` has written.

    python -m docs.made.pictures.simulation FILE FOLDER

`waits` has how long requests wait under each policy, `pareto` what that costs: each point is a run, and lines join the
values of a sweep. Both are drawn in two themes.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.made.pictures.style import BLUE, GREEN, NOTE, ORANGE, chart, svg, write

KEPT = Path(__file__).parents[3] / "benchmarks/speed/results/simulated.json"
Run = Mapping[str, Any]
COLOURS = {"parlance": BLUE, "serve": ORANGE, "always on": GREEN}
KNEE_S = 0.1
"""Waits are drawn evenly up to this, and by their logarithm beyond."""


def waits(runs: Sequence[Run]) -> str:
    """The wait of each hundredth of the requests, by policy."""
    with chart(300) as (figure, panels):
        panel = panels[0, 0]
        for run in runs:
            panel.plot(range(101), run["waits_s"], color=_colour(run), label=run["policy"], linewidth=1.5)
        panel.set(xlim=(0, 100), xlabel="per cent of the requests", ylabel="waited at most, s")
        panel.set_yscale("symlog", linthresh=KNEE_S)
        panel.legend(loc="upper left", handlelength=1.2)
        description = "A line for each run: " + "; ".join(
            f"{run['policy']}: half waited {run['p50_s']:.1f} s at most, 95 of 100 {run['p95_s']:.1f} s" for run in runs
        )
        return svg(figure, "How long requests wait, by policy", description)


def pareto(runs: Sequence[Run]) -> str:
    """Replica-hours and the 95th percentile of waits of each run; cold hits below."""
    lines: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        lines[_policy(run)].append(run)
    with chart(470, 2, 1, sharex=True) as (figure, panels):
        for panel, key, title in ((panels[0, 0], "p95_s", "p95 of waits, s"), (panels[1, 0], "cold_hits", "cold hits")):
            for policy, points in lines.items():
                hours = [run["replica_hours"] for run in points]
                panel.plot(hours, [run[key] for run in points], "o-", color=COLOURS.get(policy), label=policy)
            panel.set(title=title, ylim=(0, None))
        for run in runs:
            if value := run["policy"].partition("=")[2]:
                panels[0, 0].annotate(
                    value,
                    (run["replica_hours"], run["p95_s"]),
                    (4, 4),
                    textcoords="offset points",
                    color=NOTE,
                    fontsize=10,
                )
        panels[1, 0].set(xlabel="replica-hours", xlim=(0, None))
        panels[0, 0].legend(loc="lower left", handlelength=1.2)
        description = "Each point is a run: " + "; ".join(
            f"{run['policy']}: {run['replica_hours']:.1f} hours, p95 {run['p95_s']:.1f} s, {run['cold_hits']} cold hits"
            for run in runs
        )
        return svg(figure, "What warmth costs, and what it saves", description)


def kept() -> str:
    """The sweep that is kept beside the results of benchmarks."""
    return pareto(json.loads(KEPT.read_text("utf-8")))


def _policy(run: Run) -> str:
    return str(run["policy"]).partition(",")[0]


def _colour(run: Run) -> str | None:
    return COLOURS.get(_policy(run))


def main(file: str, folder: str) -> None:
    """Draws both."""
    runs = json.loads(Path(file).read_text("utf-8"))
    write(waits(runs), Path(folder), "waits")
    write(pareto(runs), Path(folder), "pareto")


if __name__ == "__main__":
    main(*sys.argv[1:3])
