"""The way of a chat request: what each part of it does, and how long that took where it was measured."""

from __future__ import annotations

from docs.made.pictures.plots import SPEED, numbers, rows
from docs.made.pictures.style import BLUE, ORANGE, PURPLE, WAY, Drawing

LEFT, FULL = 20, 440
STEPS = (
    ("HAProxy", "the one port", "", ""),
    ("ingress", "key, limits, the bill", "gateway", "{gateway_ms} ms"),
    ("gate", "wait for a free slot", "queue", "0 with a slot"),
    ("", "wait for a start", "load", "0 if it runs"),
    ("engine", "prompt, then tokens", "engine", "the rest"),
)
"""What a request meets, what happens there, the name of that time in `server-timing`, and how long it was."""


def journey() -> str:
    """The steps, and the time to the first token in three states of the engine."""
    gateway_ms = _cell("gateway.md", "case", ("unary, 1", "Parlance"), 4)
    alone_ms, among_ms = (_cell("chat.md", "streams", (streams, "Parlance"), 3) for streams in ("1", "16"))
    start = rows(SPEED / "cold_start.md", "with the fork server | first answer s")[0]
    phases_s = [numbers(start[column])[0] for column in (2, 3, 4, 5)]
    drawing = Drawing(
        560,
        "The way of a chat request, with its times",
        f"HAProxy, ingress, gate and engine in turn. The gateway adds {gateway_ms} ms. The first token comes after "
        f"{alone_ms:.0f} ms where the engine runs, {among_ms:.0f} ms with 16 streams at once, "
        f"{sum(phases_s):.1f} s where it slept.",
    )
    drawing.text(292, 18, "in server-timing", "name")
    for number, (name, note, field, value) in enumerate(STEPS):
        y = 28 + 56 * number
        if name:
            drawing.room(LEFT, y, 256, 100 if name == "gate" else 44, "box")
            drawing.way(f"M60 {y - 12 if number else 6}V{y - 1}")
        drawing.text(LEFT + 12, y + 27, name, "name")
        drawing.text(LEFT + 100, y + 27, note)
        drawing.text(292, y + 27, field, "name")
        drawing.text(LEFT + FULL, y + 27, value.format(gateway_ms=gateway_ms), anchor="end")
    drawing.text(LEFT, 336, "First token of a chat stream", "name")
    _bar(drawing, 352, "the engine runs", f"{alone_ms:.0f} ms", [(alone_ms / 1000, BLUE)], sum(phases_s))
    _bar(drawing, 402, "16 streams at once", f"{among_ms:.0f} ms", [(among_ms / 1000, BLUE)], sum(phases_s))
    colours = (WAY, PURPLE, ORANGE, BLUE)
    bars = list(zip(phases_s, colours, strict=True))
    _bar(drawing, 452, "the engine slept", f"{sum(phases_s):.1f} s", bars, sum(phases_s))
    x = LEFT
    for name, colour, width in zip(
        ("noticed", "process", "loading", "first token"), colours, (100, 96, 96, 0), strict=True
    ):
        drawing.add(f'<rect x="{x}" y="512" width="12" height="12" rx="2" fill="{colour}"/>')
        drawing.text(x + 18, 523, name)
        x += width
    drawing.text(LEFT, 549, "SmolLM2 in 8 bits, two CPU cores")
    return str(drawing)


def _bar(drawing: Drawing, y: int, name: str, value: str, parts: list[tuple[float, str]], whole: float) -> None:
    drawing.text(LEFT, y + 12, name)
    drawing.text(LEFT + FULL, y + 12, value, "name", "end")
    x = float(LEFT)
    for seconds, colour in parts:
        width = max(3.0, seconds / whole * FULL)
        drawing.add(f'<rect x="{x:.1f}" y="{y + 19}" width="{width:.1f}" height="18" fill="{colour}"/>')
        x += width


def _cell(page: str, heading: str, begins: tuple[str, ...], column: int) -> float:
    """The first number of a cell, of the first row that begins so."""
    row = next(row for row in rows(SPEED / page, heading) if tuple(row[: len(begins)]) == begins)
    return numbers(row[column])[0]
