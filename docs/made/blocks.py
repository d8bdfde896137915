"""Parts of pages that are made, each between two marks; all else on such a page is written by hand."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[1]
END = "<!-- end -->\n"


def filled(name: str, **blocks: str) -> str:
    """The page `name` of docs/ with each block made anew.

    Raises ValueError where the page lacks a mark.
    """
    text = (FOLDER / name).read_text("utf-8")
    for block, content in blocks.items():
        begin = f"<!-- made by `make docs`: {block} -->\n"
        before, rest = text.split(begin)
        _, after = rest.split(END, 1)
        text = f"{before}{begin}\n{content.strip()}\n\n{END}{after}"
    return text
