"""docs/reliability.md: what the last published campaign tried and lost, from its record `campaign.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from docs.made.blocks import filled

RECORD = Path(__file__).with_name("campaign.json")
COLUMNS = ("promise", "attacked by", "tries", "lost", "seconds", "tests")
TITLES = {
    "deaths": "Deaths and stops",
    "nodes": "Deaths and stops",
    "machines": "Random histories",
    "disks": "Disks",
    "databases": "Databases",
    "load": "Load",
    "inputs": "Bad input",
    "tenants": "Two organisations, two ingress replicas",
    "reloads": "Ingress replicas come and go",
}
ENDS = (" changed by chance", " of another organisation")

Row = dict[str, Any]


def page() -> str:
    """The whole page."""
    record = json.loads(RECORD.read_text("utf-8"))
    by_title = groupby(sorted(record["outcomes"], key=lambda row: list(TITLES).index(row["part"])), _title)
    parts = "\n\n".join(f"## {title}\n\n{_table(list(rows))}" for title, rows in by_title)
    kind = "a short campaign" if record["is_short"] else "a whole campaign"
    about = f"Last published: {kind} on {record['day']} with seed {record['seed']}, on {record['machine']}."
    return filled("reliability.md", campaign=f"{about}\n\n{parts}")


def _title(row: Row) -> str:
    return TITLES[row["part"]]


def _table(rows: Sequence[Row]) -> str:
    """A line for each promise, with everything that was done to it; without the seconds where none were taken."""
    promises: dict[str, list[Row]] = {}
    for row in rows:
        promises.setdefault(row["promise"], []).append(row)
    lines = [_cells(promise, attacked) for promise, attacked in promises.items()]
    shown = [index for index in range(len(COLUMNS)) if any(line[index] for line in lines)]
    head, *body = ("| " + " | ".join(line[index] for index in shown) + " |" for line in [COLUMNS, *lines])
    return "\n".join([head, "|" + "---|" * len(shown), *body])


def _cells(promise: str, attacked: Sequence[Row]) -> tuple[str, ...]:
    ways: dict[str, list[str]] = {}
    for row in attacked:
        fault, _, way = row["fault"].partition(": ")
        ways.setdefault(fault, []).append(way)
    faults = _joined(f"{fault} {' and '.join(filter(None, each))}".strip() for fault, each in ways.items())
    times, lost = (str(sum(row[count] for row in attacked)) for count in ("times", "lost"))
    seconds = [row["normal_s"] for row in attacked if row["normal_s"] is not None]
    tests = dict.fromkeys(f"`{row['held_by']}`" for row in attacked if row["held_by"])
    return promise, faults, times, lost, f"{max(seconds):.0f} s" if seconds else "", ", ".join(tests)


def _joined(faults: Iterable[str]) -> str:
    """Faults as a list in which what several have in common stands once: `A amid X; Y`, `X, Y changed by chance`."""
    alike: dict[tuple[str, str], list[str]] = {}
    for fault in faults:
        head, amid, rest = fault.rpartition(" amid ")
        end = next(filter(rest.endswith, ENDS), "")
        alike.setdefault((head + amid, end), []).append(rest.removesuffix(end))
    return "; ".join(f"{head}{(', ' if end else '; ').join(names)}{end}" for (head, end), names in alike.items())
