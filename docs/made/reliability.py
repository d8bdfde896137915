"""docs/reliability.md: what the last published campaign tried and lost, from its record `campaign.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from docs.made.blocks import filled

RECORD = Path(__file__).with_name("campaign.json")
HEAD = "| promise | what was done to it | tries | lost | longest until normal | held between campaigns by |\n"
HEAD += "|---|---|---|---|---|---|\n"
TITLES = {
    "deaths": "Deaths and stops",
    "machines": "Random histories",
    "disks": "Disks",
    "databases": "Databases",
    "load": "Load",
    "inputs": "Bad input",
    "tenants": "Two organisations, two ingress replicas",
    "reloads": "Ingress replicas come and go",
}

Row = dict[str, Any]


def page() -> str:
    """The whole page."""
    record = json.loads(RECORD.read_text("utf-8"))
    by_part = groupby(sorted(record["outcomes"], key=lambda row: list(TITLES).index(row["part"])), _part)
    parts = "\n\n".join(f"## {TITLES[part]}\n\n{HEAD}" + "\n".join(_lines(rows)) for part, rows in by_part)
    kind = "a short campaign" if record["is_short"] else "a whole campaign"
    about = f"Last published: {kind} on {record['day']} with seed {record['seed']}, on {record['machine']}."
    return filled("reliability.md", campaign=f"{about}\n\n{parts}")


def _part(row: Row) -> str:
    return str(row["part"])


def _lines(rows: Iterable[Row]) -> Iterable[str]:
    """A line for each promise, with everything that was done to it."""
    promises: dict[str, list[Row]] = {}
    for row in rows:
        promises.setdefault(row["promise"], []).append(row)
    for promise, attacked in promises.items():
        ways: dict[str, list[str]] = {}
        for row in attacked:
            fault, _, way = row["fault"].partition(": ")
            ways.setdefault(fault, []).append(way)
        faults = _joined(f"{fault} {' and '.join(filter(None, each))}".strip() for fault, each in ways.items())
        seconds = [row["normal_s"] for row in attacked if row["normal_s"] is not None]
        tests = dict.fromkeys(row["held_by"] for row in attacked if row["held_by"])
        cells = [promise, faults, sum(row["times"] for row in attacked), sum(row["lost"] for row in attacked)]
        cells += [f"{max(seconds):.0f} s" if seconds else "", ", ".join(f"`{test}`" for test in tests)]
        yield f"| {' | '.join(map(str, cells))} |"


def _joined(faults: Iterable[str]) -> str:
    """Faults as a list in which what several have in common stands once: `A amid X; Y`, `X, Y changed by chance`."""
    alike: dict[tuple[str, str], list[str]] = {}
    for fault in faults:
        head, amid, rest = fault.rpartition(" amid ")
        name, end, _ = rest.partition(" changed by chance")
        alike.setdefault((head + amid, end), []).append(name)
    return "; ".join(f"{head}{(', ' if end else '; ').join(names)}{end}" for (head, end), names in alike.items())
