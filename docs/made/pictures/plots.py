"""The plots, drawn from what the results of the benchmarks hold: tables of their pages, and JSON beside them."""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.quality.verdicts import interval
from docs.made.pictures.style import BLUE, COLD, GREEN, INK, NOTE, ORANGE, PURPLE, WAY, chart, svg
from models.decisions.calibration import BINS

ROOT = Path(__file__).parents[3]
SPEED, QUALITY = ROOT / "benchmarks/speed/results", ROOT / "benchmarks/quality/results"

LOAD, ANSWER_S = 90, 15
"""Requests a second of an ingress replica, a tenth of what it can take, and how long each is open (docs/sizing.md)."""
CONNECTIONS, MOST_CONNECTIONS, HAPROXY_CONNECTIONS, LOOK_S = 18, 100, 4096, 1.0
"""To PostgreSQL for each ingress replica, and as it comes; RAY_SERVE_HAPROXY_MAXCONN; the controller's interval."""
SHADES = (BLUE, PURPLE, GREEN, ORANGE, INK)

_NUMBER = re.compile(r"[\d,]*\d(?:\.\d+)?")


def rows(page: Path, heading: str) -> list[list[str]]:
    """The cells of the table whose first line begins with `| HEADING |`, without that line."""
    _, _, below = page.read_text("utf-8").partition(f"| {heading} |")
    _, *lines = below.partition("\n\n")[0].splitlines()[1:]
    assert lines, f"{page.name} has no table of {heading!r}"
    return [[cell.strip(" *") for cell in line.strip("| ").split(" | ")] for line in lines]


def numbers(cell: str) -> list[float]:
    """All numbers of a cell."""
    return [float(number.replace(",", "")) for number in _NUMBER.findall(cell)]


def growth() -> str:
    """Rate and p99 by the number of clients; first token and time between tokens by the length of the prompt."""
    clients, prompts = rows(SPEED / "growth.md", "clients"), rows(SPEED / "growth.md", "tokens of the prompt")
    with chart(470, 2, 2) as (figure, panels):
        for panel, unit, columns in ((panels[0, 0], "requests/s", (1, 2)), (panels[0, 1], "p99, ms", (3, 4))):
            _lines(panel, clients, columns, ("two bare hops", "Parlance"), (WAY, BLUE))
            panel.set(xlabel="clients", title=unit)
        for panel, name, column in ((panels[1, 0], "first token, ms", 1), (panels[1, 1], "between tokens, ms", 2)):
            _lines(panel, prompts, (column,), (None,), (BLUE,))
            panel.set(xlabel="tokens of the prompt", title=name)
        panels[1, 1].set(yscale="linear", ylim=(0, 16))
        panels[0, 0].legend(loc="lower right", handlelength=1.2)
        description = (
            "Four panels. The rate of Parlance follows that of two bare hops of Ray Serve and bends at 64 clients; p99 "
            "grows with the clients. The first token comes later from some 120 tokens of prompt on; the time between "
            "tokens hardly grows."
        )
        return svg(figure, "How cost grows with clients and prompts", description)


def _lines(
    panel: Any,
    table: Iterable[Sequence[str]],
    columns: Sequence[int],
    names: Sequence[str | None],
    colours: Sequence[str],
) -> None:
    cells = [[numbers(cell) for cell in row] for row in table]
    sizes = [row[0][0] for row in cells]
    for column, name, colour in zip(columns, names, colours, strict=True):
        means = [statistics.fmean(row[column]) for row in cells]
        panel.plot(sizes, means, marker="o", color=colour, label=name)
    panel.set(xscale="log", yscale="log")
    _plain_ticks(panel.xaxis, sizes[::2])
    low, high = panel.get_ylim()
    _plain_ticks(
        panel.yaxis, [step * 10**power for power in range(5) for step in (1, 2, 5) if low < step * 10**power < high]
    )


def _plain_ticks(axis: Any, values: Sequence[float]) -> None:
    axis.set_ticks(values, labels=[f"{value:,.0f}" for value in values])
    axis.set_ticks([], minor=True)


def cold_start() -> str:
    """Seconds to the first answer of an engine at zero, with the fork server and without it."""
    table = rows(SPEED / "cold_start.md", "| with the fork server | without | all, with")[:7]
    names = [re.sub(r" \(.*\)", "", row[0]).replace(", by ", ",\nby ") for row in table]
    with chart(400) as (figure, panels):
        panel = panels[0, 0]
        for column, shift, colour, way in ((1, -0.19, BLUE, "with the fork server"), (2, 0.19, WAY, "without")):
            seconds = [numbers(row[column])[0] for row in table]
            places = [number + shift for number in range(len(table))]
            panel.barh(places, seconds, 0.36, color=colour, label=way)
            for place, value in zip(places, seconds, strict=True):
                panel.text(value + 0.25, place, f"{value:.1f} s", va="center", color=NOTE, fontsize=11)
        panel.set_yticks(range(len(names)), labels=names, color=INK)
        panel.set(xlim=(0, 21), xticks=range(0, 21, 5), xlabel="seconds to the first answer")
        panel.grid(axis="y", visible=False)
        panel.invert_yaxis()
        figure.legend(loc="outside upper left", ncols=2, handlelength=1)
        description = "Two bars for each of seven engines: " + "; ".join(
            f"{row[0]} {row[1]} s with the fork server, {row[2]} s without" for row in table
        )
        return svg(figure, "Cold starts with the fork server and without it", description)


def reliability() -> str:
    """How often each decision model was right, by how sure it was."""
    judged: dict[str, list[tuple[float, int]]] = json.loads((QUALITY / "decisions.json").read_text("utf-8"))
    with chart(290, 1, len(judged), sharey=True) as (figure, panels):
        for panel, (model, pairs) in zip(panels[0], judged.items(), strict=True):
            panel.plot([0, 1], [0, 1], color=WAY, linestyle="--", linewidth=1)
            bins = defaultdict(list)
            for sure, right in pairs:
                bins[min(BINS - 1, int(sure * BINS))].append(right)
            for place, answers in sorted(bins.items()):
                middle, share = (place + 0.5) / BINS, statistics.fmean(answers)
                low, high = interval(sum(answers), len(answers))
                panel.bar(middle, share, 0.86 / BINS, color=COLD, edgecolor=BLUE)
                panel.plot([middle, middle], [low, high], color=INK, linewidth=1)
                panel.text(middle, high + 0.02, f"{len(answers)}", ha="center", color=NOTE, fontsize=10)
            panel.set(xlim=(0, 1), ylim=(0, 1.08), title=model, xlabel="probability of the answer")
            panel.set_yticks((0, 0.25, 0.5, 0.75, 1), labels=("0", "25 %", "50 %", "75 %", "100 %"))
            panel.set_xticks((0, 0.5, 1), labels=("0", "0.5", "1"))
            panel.grid(axis="x", visible=False)
        panels[0][0].set_ylabel("right answers")
        description = (
            "One panel for each model. Bars show the share of right answers in ten bins of the probability of the "
            "answer, with the interval of chance and the number of answers; on the dashed line both are equal."
        )
        return svg(figure, "How often each decision model is right, by how sure it is", description)


def scale() -> str:
    """How much of each limit a cluster of so many ingress replicas takes, each with a tenth of the load it can take."""
    kept = json.loads((SPEED / "unit_costs.json").read_text("utf-8"))
    sizes = (1, 10, 100, 1000)
    with chart(360) as (figure, panels):
        panel = panels[0, 0]
        for (name, shares), colour in zip(shares_of_limits(kept, sizes).items(), SHADES, strict=True):
            panel.plot(sizes, shares, marker="o", color=colour, label=name)
        panel.axhline(1, color=INK, linewidth=1, linestyle="--")
        panel.set(
            xscale="log", yscale="log", xlabel="ingress replicas, and replicas of one engine", ylabel="of its limit"
        )
        _plain_ticks(panel.xaxis, sizes)
        panel.set_yticks((0.01, 0.1, 1, 10, 100), labels=("1 %", "10 %", "all", "10 times", "100 times"))
        panel.set_yticks([], minor=True)
        panel.legend(loc="lower right", handlelength=1.2, fontsize=10)
        description = "Lines that rise with the size and cross their limit: " + "; ".join(
            f"{name} {', '.join(f'{share:.2g}' for share in shares)}"
            for name, shares in shares_of_limits(kept, sizes).items()
        )
        return svg(figure, "What breaks first as a cluster grows", description)


def shares_of_limits(kept: dict[str, Any], sizes: Sequence[int]) -> dict[str, list[float]]:
    """What a cluster takes of each limit, by the number of its ingress replicas; 1 is all of it."""
    settles, rates = (kept["costs"][name][0] for name in ("settle, postgresql", "rate, redis"))
    handles, replicas, look_ms = kept["looks"][-1]
    pair_s = look_ms / 1000 / (handles * replicas)
    return {
        "connections of PostgreSQL": [size * CONNECTIONS / MOST_CONNECTIONS for size in sizes],
        "connections of HAProxy": [size * LOAD * ANSWER_S / HAPROXY_CONNECTIONS for size in sizes],
        "settles of PostgreSQL": [size * LOAD / settles for size in sizes],
        "rates in Redis": [size * LOAD / rates for size in sizes],
        "a look of the controller": [size * size * pair_s / LOOK_S for size in sizes],
    }
