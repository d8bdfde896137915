"""The table of docs/cluster.md: what the last published rehearsal did, from its record `rehearsal.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.made.blocks import filled

RECORD = Path(__file__).with_name("rehearsal.json")
HEAD = "| step | seconds | what held |\n|---|---|---|\n"

RESULTS = {
    "first start": "head and two ingress pods are ready; one of engines follows",
    "upload of 100 MiB": "and one byte more is refused",
    "engines reach their memory limit": "streams end with an error event, or with that pod's proxy; all comes back",
    "head gone and back": "chat goes on; a head at another address finds both ingress replicas",
    "full emptyDir": "every capability answers",
    "rolling restart": "no call failed",
    "backup and restore into a second cluster": "nothing of the list above is lost",
}
"""Of a step that did not fail, by its name; else its own count."""


def page() -> str:
    """The whole page."""
    record = json.loads(RECORD.read_text("utf-8"))
    rows = [f"| {step['step']} | {step['s']:.0f} | {_result(step)} |" for step in record["steps"]]
    day = max(step["day"] for step in record["steps"])
    about = (
        f"Last published: {day}, on {record['machine']}, which did other work beside it; each row is of its last run."
    )
    return filled("cluster.md", rehearsal=f"{about}\n\n{HEAD}" + "\n".join(rows))


def _result(step: dict[str, Any]) -> str:
    """Outcome of a step in one line."""
    if not step["ok"]:
        return "failed"
    counts = [note for note in step["notes"] if note.startswith(("streams: ", "found: ")) or "calls by status" in note]
    return RESULTS.get(step["step"], "; ".join(counts[-1:]))
