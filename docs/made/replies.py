"""Replies of a real server to the examples of the reference, kept in `replies.json`.

    make serve                                     in another terminal
    .venv/bin/python -m docs.made.replies          asks every example, and keeps the JSON that comes

Long lists are cut to two entries. A test holds each reply to the schema of its route.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from docs.made.reference import REPLIES, examples

MOST_ENTRIES = 2
MOST_CHARS = 400
SOUND = """
curl http://127.0.0.1:8000/v1/audio/speech -H "Authorization: Bearer $PARLANCE_KEY" \\
  -d '{"input": "Good morning.", "language": "en", "response_format": "wav"}' -o var/morning.wav
"""
"""What the examples of transcription read."""


def main() -> None:
    """Entry point."""
    key = Path("var/demo.key").read_text("utf-8").strip()
    replies = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "var").mkdir()
        Path(folder, ".curlrc").write_text("silent\nshow-error\n")
        environment = os.environ | {"PARLANCE_KEY": key, "CURL_HOME": folder}
        for route, shell in [("", SOUND), *((route, example.shell) for route, example in examples().items())]:
            done = subprocess.run(["bash", "-c", shell], cwd=folder, env=environment, capture_output=True, text=True)
            if route and (reply := _json(done.stdout)) is not None:
                replies[route] = shortened(reply)
    REPLIES.write_text(json.dumps(replies, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _json(text: str) -> Any:
    """What a body holds that is JSON, or one event with JSON; None for all else."""
    _, _, event = text.rpartition("data: ")
    try:
        return json.loads(event)
    except ValueError:
        return None


def shortened(value: Any) -> Any:
    """`value` with two entries of each list, and without the ends of long texts."""
    if isinstance(value, dict):
        return {name: shortened(child) for name, child in value.items()}
    if isinstance(value, list):
        return [shortened(child) for child in value[:MOST_ENTRIES]]
    return f"{value[:MOST_CHARS]}..." if isinstance(value, str) and len(value) > MOST_CHARS else value


if __name__ == "__main__":
    main()
