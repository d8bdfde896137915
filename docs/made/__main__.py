"""Writes the pages that are made: `python -m docs.made`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs.made import commands, errors, reference, settings

FOLDER = Path(__file__).parents[1]

PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands.page,
    "errors.md": errors.page,
    "reference.md": reference.page,
    "settings.md": settings.page,
}
"""What makes the text of each page."""


def main() -> None:
    """Writes every page anew."""
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
