"""Traces to simulate: requests, each with its second, its engine, its organisation and its work.

A file of them is CSV with a header line. `python -m state usage --format csv` writes one.

    at             when the request came, in ISO 8601 or as seconds since 1970
    model          id in the catalogue
    organisation   any name; all are one organisation where it is missing
    work_s         how long an engine that has nothing else works on it, in seconds

Instead of `work_s` it may have `took_ms` and `waited_ms`, as usage has them: then `at` is when a request had ended.
Lines without them, of versions that did not keep them, are left out.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

GAP_S = 6 * 3600.0
"""A longer time without any request is reported: it may be a hole in the record."""


class TraceError(ValueError):
    """A trace that cannot be read; the sentence says why."""


@dataclass(frozen=True)
class SimulatedTrace:
    """Requests in the order in which they come; all arrays have one element for each.

    Attributes:
        engines: names.
        at_s: seconds since `epoch_s`, ascending, float64.
        engine: index into `engines`, int16.
        owner: organisation, int32; from 1.
        work_s: time that a replica with nothing else to do works on it, float32.
        epoch_s: Unix time at which the trace begins.
        notes: sentences about what was read and left out.
    """

    engines: tuple[str, ...]
    at_s: npt.NDArray[np.float64]
    engine: npt.NDArray[np.int16]
    owner: npt.NDArray[np.int32]
    work_s: npt.NDArray[np.float32]
    epoch_s: float = 0.0
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.at_s)


def read(lines: Iterable[str], engines: Mapping[str, str], now_s: float) -> SimulatedTrace:
    """The trace that `lines` of CSV hold; `engines` are the deployments of models, by id. Raises TraceError."""
    table = csv.DictReader(lines)
    columns = set(table.fieldnames or ())
    if missing := {"at", "model"} - columns:
        raise TraceError(f"the trace has no column `{min(missing)}`; it has {', '.join(sorted(columns)) or 'none'}")
    if "work_s" not in columns and not {"took_ms", "waited_ms"} <= columns:
        raise TraceError("the trace has no column `work_s`, so it is unknown how long calls take")
    names = tuple(dict.fromkeys(engines.values()))
    place, owners, gone = {name: number for number, name in enumerate(names)}, dict[str, int](), Counter[str]()
    rows: list[tuple[float, int, int, float]] = []
    future = timeless = 0
    for at_s, row, work_s in _rows(table, is_usage="work_s" not in columns):
        if work_s is None:
            timeless += 1
        elif (deployment := engines.get(row["model"])) is None:
            gone[row["model"]] += 1
        elif at_s > now_s:
            future += 1
        else:
            owner = owners.setdefault(row.get("organisation") or "", len(owners) + 1)
            rows.append((at_s, place[deployment], owner, work_s))
    if not rows:
        raise TraceError(f"the trace has no request that can be played{_left_out(gone, future, timeless)}")
    return _trace(names, rows, _left_out(gone, future, timeless))


def _rows(table: csv.DictReader[str], *, is_usage: bool) -> Iterator[tuple[float, dict[str, str], float | None]]:
    """Returns when each request came, its fields, and its work; None if it is not known."""
    for row in table:
        try:
            at_s = _time(row["at"])
            if not is_usage:
                work_s = float(row["work_s"])
            elif row["took_ms"]:
                at_s -= float(row["took_ms"]) / 1000
                work_s = (float(row["took_ms"]) - float(row["waited_ms"])) / 1000
            else:
                yield at_s, row, None
                continue
            if not (math.isfinite(at_s) and 0 <= work_s < math.inf):
                raise ValueError(f"{work_s} is no time")
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(f"line {table.line_num} of the trace cannot be read: {error}") from None
        yield at_s, row, work_s


def _time(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _trace(names: tuple[str, ...], rows: list[tuple[float, int, int, float]], left_out: str) -> SimulatedTrace:
    at_s, engine, owner, work_s = (np.array(column) for column in zip(*rows, strict=True))
    notes = []
    if late := int(np.count_nonzero(np.diff(at_s) < 0)):
        notes.append(f"{late} requests stand before an earlier one; all were sorted by time.")
        order = np.argsort(at_s, kind="stable")
        at_s, engine, owner, work_s = (column[order] for column in (at_s, engine, owner, work_s))
    gaps = np.diff(at_s)
    if len(gaps) and gaps.max() > GAP_S:
        after = datetime.fromtimestamp(float(at_s[int(gaps.argmax())]), UTC)
        notes.append(
            f"Nothing came for {gaps.max() / 3600:.1f} h after {after:%Y-%m-%d %H:%M} UTC; that is played as it is."
        )
    if left_out:
        notes.append(f"Some requests are not played{left_out}.")
    begin_s = float(at_s[0])
    return SimulatedTrace(
        names,
        at_s - begin_s,
        engine.astype(np.int16),
        owner.astype(np.int32),
        work_s.astype(np.float32),
        begin_s,
        tuple(notes),
    )


def _left_out(gone: Counter[str], future: int, timeless: int) -> str:
    parts = [f"{count} are of `{model}`, which this profile does not have" for model, count in gone.most_common(5)]
    if future:
        parts.append(f"{future} come in the future")
    if timeless:
        parts.append(f"of {timeless} it was not kept how long they took")
    return ": " + "; ".join(parts) if parts else ""
