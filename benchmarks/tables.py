"""Tables in Markdown, as benchmarks print them."""

from __future__ import annotations

import os
from collections.abc import Iterable


def table(head: str, rows: Iterable[Iterable[object]]) -> str:
    """A table of `rows` of cells; `head` is its first line, without the outer bars."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([f"| {head} |", "|---" * (head.count(" | ") + 1) + "|", *lines])


def show(text: str) -> None:
    """Prints what was measured, and how busy the machine is."""
    print(f"{text}\nload average {os.getloadavg()[0]:.1f}")
