"""Picture of what `python -m benchmarks.capacity --json FILE` has written: replica-hours, waits and cold hits.

    python -m docs.made.pictures.simulation FILE FOLDER

Each point is a run, and lines join the values of a sweep. It is drawn in two themes.
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


def pareto(runs: Sequence[Run] = ()) -> str:
    """Replica-hours, 95th percentile of waits and cold hits of each run; of the runs in KEPT by default."""
    runs = runs or json.loads(KEPT.read_text("utf-8"))
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


def _policy(run: Run) -> str:
    return str(run["policy"]).partition(",")[0]


if __name__ == "__main__":
    write(pareto(json.loads(Path(sys.argv[1]).read_text("utf-8"))), Path(sys.argv[2]), "pareto")
