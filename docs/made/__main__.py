"""Writes the pages and pictures that are made: `python -m docs.made`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs.made import alerts, commands, errors, observability, rehearsal, reliability, settings, voices
from docs.made.pictures import diagrams, journey, panels, plots, simulation, style, terminal

FOLDER = Path(__file__).parents[1]

PAGES: dict[str, Callable[[], str]] = {
    "cluster.md": rehearsal.page,
    "commands.md": commands.page,
    "errors.md": errors.page,
    "observability.md": observability.page,
    "reliability.md": reliability.page,
    "settings.md": settings.page,
    "voices.md": voices.page,
    "../cluster/observability/kubernetes.yaml": alerts.kubernetes,
}
"""What makes the text of each page, and of each file for whoever watches."""

PICTURES: dict[str, Callable[[], str]] = {
    "cold-start": plots.cold_start,
    "deployment": diagrams.deployment,
    "engine": diagrams.engine,
    "first-minutes": terminal.terminal,
    "graph": diagrams.graph,
    "growth": plots.growth,
    "journey": journey.journey,
    "observability": panels.panels,
    "reliability": plots.reliability,
    "threats": diagrams.threats,
    "scale": plots.scale,
    "simulation": simulation.pareto,
}
"""What draws each picture, in the light theme."""


def main() -> None:
    """Writes every page and picture anew."""
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), "utf-8")
    for name, draw in PICTURES.items():
        style.write(draw(), FOLDER / "images", name)


if __name__ == "__main__":
    main()
