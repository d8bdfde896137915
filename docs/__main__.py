"""Writes the pages that are made: `python -m docs`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs import errors, reference

FOLDER = Path(__file__).parent

PAGES: dict[str, Callable[[], str]] = {"errors.md": errors.page, "reference.md": reference.page}
"""What makes the text of each page."""


def main() -> None:
    """Writes every page anew."""
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
