"""Writes the pages that are made: `python -m docs.made`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from docs.made import alerts, commands, errors, observability, reference, settings
from docs.made.dashboards import dashboard
from docs.made.panels import DASHBOARDS

FOLDER = Path(__file__).parents[1]

PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands.page,
    "errors.md": errors.page,
    "observability.md": observability.page,
    "reference.md": reference.page,
    "settings.md": settings.page,
    "../cluster/observability/alerts.yaml": alerts.rules,
    "../cluster/observability/kubernetes.yaml": alerts.kubernetes,
    **{f"../cluster/observability/{name}.json": partial(dashboard, name) for name in DASHBOARDS},
}
"""What makes the text of each page, and of each file for whoever watches."""


def main() -> None:
    """Writes every page anew."""
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
