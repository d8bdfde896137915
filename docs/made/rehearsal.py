"""The table of docs/cluster.md: what the last published rehearsal did, from its record `rehearsal.json`."""

from __future__ import annotations

import json
from pathlib import Path

from docs.made.blocks import filled

RECORD = Path(__file__).with_name("rehearsal.json")
HEAD = "| step | seconds | noted |\n| --- | ---: | --- |\n"


def page() -> str:
    """The whole page."""
    record = json.loads(RECORD.read_text("utf-8"))
    rows = []
    for step in record["steps"]:
        notes = step["notes"][-1:] if step["ok"] else ["failed"]
        rows.append(f"| {step['step']} | {step['s']:.0f} | {'; '.join(notes)} |")
    about = f"Last published: {record['day']}, on {record['machine']}."
    return filled("cluster.md", rehearsal=f"{about}\n\n{HEAD}" + "\n".join(rows))
