"""The first two minutes in a terminal, line by line, from the recording in `first_minutes.json`.

The lines come one after the other and begin anew. Whoever wants no motion, or has a viewer that knows none, sees all of
them at once.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from html import escape

from docs.made.pictures.record import RECORDING
from docs.made.pictures.style import BLUE, BOX, GREEN, INK, LINE, MONO, NOTE, WAY, WIDTH, Drawing

COLUMNS = 52
STEP_PX, TOP_PX, LEFT_PX = 19, 52, 18
COMMAND_S, LINE_S, END_S = 1.6, 0.25, 8.0
"""How long a reader gets for a command, for a line of a reply, and for all of them at the end."""
OPTION, FIELD = (
    re.compile(r" (?=-[HdoF] |&& )"),
    re.compile(r'(?<=,) (?="(?:messages|content|language|response_format)")'),
)
COMPLETION = re.compile(r'({"id":"[\w-]+"),.*("content":".*?"),.*')
SHOWN = ("Parlance is ready", "The organisation")
"""Lines of the server that a newcomer has to read; the others name weights and repeat the requests below."""


def terminal() -> str:
    """A terminal with a command, its reply, the next command ..."""
    lines = list(_lines())
    whole_s = sum(seconds for _, _, seconds in lines) + END_S
    rules = [
        f"  text {{ font: 14.5px {MONO}; fill: {INK}; white-space: pre; }}",
        f"  .prompt {{ fill: {GREEN}; font-weight: 700; }}",
        f"  .reply {{ fill: {NOTE}; }}",
        f"  .answer {{ fill: {BLUE}; }}",
        f"  .bar {{ font: 13px {MONO}; fill: {NOTE}; }}",
    ]
    parts, at_s = [], 0.0
    for number, (kind, words, seconds) in enumerate(lines):
        share = at_s / whole_s * 100
        rules.append(
            f"  @keyframes l{number} {{ 0%, {share:.2f}% {{ opacity: 0 }} {share + 0.5:.2f}%, 98% {{ opacity: 1 }} }}"
        )
        parts.append(_line(number, kind, words))
        at_s += seconds
    rules.append("  @media (prefers-reduced-motion: no-preference) {")
    rules += [f"    .l{number} {{ animation: l{number} {whole_s:.1f}s infinite; }}" for number in range(len(lines))]
    rules.append("  }")
    height = TOP_PX + STEP_PX * len(lines) + 12
    said = " ".join(" ".join(step["output"]) for step in json.loads(RECORDING.read_text("utf-8"))[1:])
    description = (
        f"make serve says that Parlance is ready. Three calls of curl ask, hear and transcribe; the replies: {said}"
    )
    drawing = Drawing(height, "The first two minutes in a terminal", description, "\n".join(rules))
    frame = f'width="{WIDTH - 2}" height="{height - 2}" rx="9" fill="{BOX}" stroke="{LINE}" stroke-width="1.2"'
    drawing.add(f'<rect x="1" y="1" {frame}/>')
    drawing.add("".join(f'<circle cx="{20 + 18 * dot}" cy="19" r="5.5" fill="{WAY}"/>' for dot in range(3)))
    drawing.add(f'<text x="{WIDTH // 2}" y="24" class="bar" text-anchor="middle">parlance</text>')
    for part in parts:
        drawing.add(part)
    return str(drawing)


def _lines() -> Iterator[tuple[str, str, float]]:
    """What kind each line is, its words, and the seconds until the next one."""
    for step in json.loads(RECORDING.read_text("utf-8")):
        if step["command"] != "make serve":
            yield "reply", "", COMMAND_S
        for number, words in enumerate(_wrapped_command(step["command"])):
            yield ("more" if number else "command"), words, LINE_S
        yield "reply", "", COMMAND_S
        output = [line for line in step["output"] if step["command"] != "make serve" or line.startswith(SHOWN)]
        for line in COMPLETION.sub(r"\1 ...\n... \2 ...", "\n".join(output)).split("\n"):
            for words in textwrap.wrap(line, COLUMNS, break_on_hyphens=False):
                yield "reply", words, LINE_S


def _wrapped_command(command: str) -> list[str]:
    """The command over several lines, as one would write it: options below the address, fields below the first one."""
    options = OPTION.split(command)
    text = " \\\n  ".join(FIELD.sub("\n    ", option) for option in options)
    return text.split("\n")


def _line(number: int, kind: str, words: str) -> str:
    y = TOP_PX + STEP_PX * number
    prompt = '<tspan class="prompt">$ </tspan>' if kind == "command" else "  " if kind == "more" else ""
    style = "reply" if kind == "reply" else "command"
    text = re.sub(
        r"(&quot;(?:content|text)&quot;:)(&quot;.*?&quot;)", r'\1<tspan class="answer">\2</tspan>', escape(words)
    )
    return f'<text x="{LEFT_PX}" y="{y}" class="{style} l{number}" xml:space="preserve">{prompt}{text}</text>'
