"""The one style of all pictures: colours in two themes, type, boxes, arrows, and charts by matplotlib.

A picture is drawn once, in the colours of the light theme; `dark` puts the colours of the other in their places. It is
`WIDTH` pixels wide, so that its type can still be read on a phone.

chart      a figure of matplotlib with our type and colours; `svg` is its text
Drawing    boxes, words and arrows, for pictures that no table draws
write      a pair of files, `NAME-light.svg` and `NAME-dark.svg`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

WIDTH = 480
INK, NOTE, WAY, LINE = "#1f2328", "#59636e", "#8c959f", "#d1d9e0"
BOX, ROOM, COLD, HOT = "#ffffff", "#f6f8fa", "#ddf4ff", "#fff1e5"
BLUE, ORANGE, GREEN, PURPLE = "#0969da", "#bc4c00", "#1a7f37", "#8250df"
DARK = {
    INK: "#f0f6fc",
    NOTE: "#9198a1",
    WAY: "#7d8590",
    LINE: "#3d444d",
    BOX: "#151b23",
    ROOM: "#0d1117",
    COLD: "#16305a",
    HOT: "#2e1d14",
    BLUE: "#4493f8",
    ORANGE: "#db6d28",
    GREEN: "#3fb950",
    PURPLE: "#ab7df8",
}
"""What stands in the dark theme for each colour."""
FACE = 'system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif'
MONO = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'

_COLOUR = re.compile("|".join(DARK))
_IDENTIFIER = re.compile(r'(?<=id=")[a-zA-Z]\w{10,}(?=")')
_PROLOGUE = re.compile(r"^.*?(?=<svg)|\s*<metadata>.*?</metadata>", re.DOTALL)


def dark(svg: str) -> str:
    """The same picture for readers of light type on a dark ground."""
    return _COLOUR.sub(lambda colour: DARK[colour[0]], svg)


def write(svg: str, folder: Path, name: str) -> None:
    """Writes both themes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}-light.svg").write_text(svg, "utf-8")
    (folder / f"{name}-dark.svg").write_text(dark(svg), "utf-8")


# --- charts ----------------------------------------------------------------------------------------------------------


@contextmanager
def chart(height: int, rows: int = 1, columns: int = 1, **options: Any) -> Iterator[tuple[Any, Any]]:
    """A figure and its panels, [rows, columns], `WIDTH` by `height` pixels; `options` are those of `subplots`."""
    import matplotlib
    from cycler import cycler

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "parlance",
        "figure.figsize": (WIDTH / 72, height / 72),
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "axes.edgecolor": WAY,
        "axes.labelcolor": NOTE,
        "axes.titlecolor": INK,
        "axes.prop_cycle": cycler(color=[BLUE, ORANGE, GREEN, PURPLE]),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.titlesize": 13,
        "axes.labelsize": 12,
        "axes.axisbelow": True,
        "axes.grid": True,
        "grid.color": LINE,
        "grid.linewidth": 0.7,
        "font.size": 12,
        "text.color": INK,
        "xtick.color": WAY,
        "ytick.color": WAY,
        "xtick.labelcolor": NOTE,
        "ytick.labelcolor": NOTE,
        "legend.frameon": False,
        "lines.linewidth": 2,
        "lines.markersize": 5,
    }
    with matplotlib.rc_context(style):
        figure, panels = pyplot.subplots(rows, columns, squeeze=False, layout="constrained", **options)
        yield figure, panels
        pyplot.close(figure)


def svg(figure: Any, title: str, description: str) -> str:
    """The text of a figure, with words for those who do not see it. The same figure gives the same text."""
    file = StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    text = _PROLOGUE.sub("", file.getvalue())
    for number, identifier in enumerate(dict.fromkeys(_IDENTIFIER.findall(text))):
        text = text.replace(identifier, f"e{number}")
    text = re.sub(r"(?<=\d)pt(?=\")", "", text, count=2)
    text = re.sub(r"(font: [^;\"]*?)'DejaVu Sans'[^;\"]*", rf"\1{FACE.replace(chr(34), chr(39))}", text)
    return text.replace("<defs>", f"{_words(title, description)}\n <defs>", 1).replace(
        "<svg ", '<svg role="img" aria-labelledby="title desc" ', 1
    )


def _words(title: str, description: str) -> str:
    return f'<title id="title">{escape(title)}</title>\n<desc id="desc">{escape(description)}</desc>'


# --- drawings --------------------------------------------------------------------------------------------------------

RULES = f"""  text {{ font-family: {FACE}; fill: {INK}; }}
  .name {{ font-size: 16px; font-weight: 600; }}
  .note {{ font-size: 14px; fill: {NOTE}; }}
  .box {{ fill: {BOX}; stroke: {LINE}; stroke-width: 1.2; }}
  .room {{ fill: {ROOM}; stroke: {LINE}; stroke-width: 1.2; stroke-dasharray: 5 4; }}
  .cold {{ fill: {COLD}; stroke: {BLUE}; stroke-width: 1.2; }}
  .hot {{ fill: {HOT}; stroke: {ORANGE}; stroke-width: 1.2; }}
  .full {{ fill: {BOX}; stroke: {PURPLE}; stroke-width: 1.6; }}
  .way {{ fill: none; stroke: {WAY}; stroke-width: 1.6; marker-end: url(#tip); }}
  .thread {{ fill: none; stroke: {WAY}; stroke-width: 1.6; }}
  .awake {{ fill: {BLUE}; }}
  .asleep {{ fill: none; stroke: {WAY}; stroke-width: 1.4; stroke-dasharray: 3 2.5; }}"""
TIP = f"""<defs>
  <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">\
<path d="M0 0L8 4L0 8z" fill="{WAY}"/></marker>
</defs>"""


class Drawing:
    """A picture of boxes, words and arrows; all sizes are in pixels, from the upper left corner."""

    def __init__(self, height: int, title: str, description: str, rules: str = RULES) -> None:
        self._height, self._head = height, f"{_words(title, description)}\n{TIP}\n<style>\n{rules}\n</style>"
        self._parts: list[str] = []

    def room(self, x: int, y: int, width: int, height: int, kind: str = "room") -> None:
        """An empty box."""
        self._parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="9" class="{kind}"/>')

    def box(
        self, x: int, y: int, width: int, height: int, name: str, notes: Sequence[str] = (), kind: str = "box"
    ) -> None:
        """A box with its name and the lines below it, in its middle."""
        self.room(x, y, width, height, kind)
        first = y + (height - 19 * len(notes)) // 2 + (6 if not notes else 4)
        self.text(x + width // 2, first, name, "name", "middle")
        for number, note in enumerate(notes, 1):
            self.text(x + width // 2, first + 19 * number + 1, note, anchor="middle")

    def text(self, x: int, y: int, words: str, kind: str = "note", anchor: str = "start") -> None:
        """A line of words on the base line `y`."""
        self._parts.append(f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>')

    def way(self, path: str, kind: str = "way") -> None:
        """An arrow along an SVG path; a line with `kind="thread"`."""
        self._parts.append(f'<path class="{kind}" d="{path}"/>')

    def add(self, part: str) -> None:
        """Anything else, as SVG."""
        self._parts.append(part)

    def __str__(self) -> str:
        size = f'viewBox="0 0 {WIDTH} {self._height}" width="{WIDTH}" height="{self._height}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">\n'
            f"{self._head}\n" + "\n".join(self._parts) + "\n</svg>\n"
        )
