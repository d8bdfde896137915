"""Rows as a table, CSV or JSON on the terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence

Rows = Iterable[Mapping[str, object]]


def table(columns: Sequence[str], rows: Rows) -> str:
    """Aligned columns, numbers to the right, `-` for None."""
    body = [[_cell(row[name]) for name in columns] for row in rows]
    lines = [list(columns), *body]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    numeric = [bool(body) and all(line[i].isdigit() or line[i] == "-" for line in body) for i in range(len(columns))]
    return "\n".join(
        "  ".join(
            text.rjust(w) if right else text.ljust(w) for text, w, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    )


def as_json(columns: Sequence[str], rows: Rows) -> str:
    """An array of objects that have exactly `columns`."""
    return json.dumps([{name: row[name] for name in columns} for row in rows], indent=1)


def as_csv(columns: Sequence[str], rows: Rows) -> str:
    """RFC 4180 with a header line; None is an empty field. No cell can become a formula in a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_inert(row[name]) for name in columns] for row in rows)
    return text.getvalue().rstrip("\r\n")


FORMATS: dict[str, Callable[[Sequence[str], Rows], str]] = {"table": table, "json": as_json, "csv": as_csv}


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, frozenset):
        return ",".join(sorted(value)) or "-"
    return _listed(value) if isinstance(value, Mapping) else str(value)


def _listed(numbers: Mapping[str, object]) -> str:
    """Numbers by unit in one cell: `input_tokens=12 output_tokens=40`."""
    return " ".join(f"{unit}={number}" for unit, number in numbers.items())


def _inert(value: object) -> object:
    if isinstance(value, Mapping):
        return _listed(value)
    # Clients choose request ids, and accountants open the file in a spreadsheet.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
