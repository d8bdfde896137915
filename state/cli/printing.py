"""Rows as a table, CSV or JSON on the terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence

Rows = Iterable[Mapping[str, object]]
Pages = AsyncIterable[Rows]


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


async def tables(columns: Sequence[str], pages: Pages) -> AsyncIterator[str]:
    """A table for each page: columns are as wide as that needs."""
    async for rows in pages:
        yield table(columns, rows) + "\n"


async def as_json(columns: Sequence[str], pages: Pages) -> AsyncIterator[str]:
    """An array of objects that have exactly `columns`."""
    before = "["
    async for rows in pages:
        if text := json.dumps([{name: row[name] for name in columns} for row in rows], indent=1)[1:-1].rstrip():
            yield before + text
            before = ","
    yield "[]\n" if before == "[" else "\n]\n"


async def as_csv(columns: Sequence[str], pages: Pages) -> AsyncIterator[str]:
    """RFC 4180 with a header line; None is an empty field. No cell can become a formula in a spreadsheet."""
    lines: Iterable[Iterable[object]] = [columns]
    async for rows in pages:
        text = io.StringIO()
        csv.writer(text, lineterminator="\r\n").writerows(
            [*lines, *([_inert(row[name]) for name in columns] for row in rows)]
        )
        yield text.getvalue()
        lines = []


FORMATS: dict[str, Callable[[Sequence[str], Pages], AsyncIterator[str]]] = {
    "table": tables,
    "json": as_json,
    "csv": as_csv,
}


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
