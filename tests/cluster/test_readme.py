"""Runs the README: each block under `<!-- run -->`, in order, against the server of this run.

Answers are compared loosely. JSON must have the same members and types; text must be the same but for numbers, dates
and ids; where the page says "Paris", so must the answer.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.cluster.conftest import ROOT, Server, eventually
from tests.docs.pages import README, Example, examples

pytestmark = pytest.mark.cluster

MASKS = (
    (r"\breq_[0-9a-f]{32}", "REQUEST"),
    (r"\bprl_\w+", "KEY"),
    (r"\b(?=[0-9A-Za-z]*[0-9A-Z])[0-9A-Za-z]{8}\b", "ID"),
    (r"\d{4}-\d\d-\d\d(T[\d:.]+Z)?", "DATE"),
    (r"\b\w{4} +DATE", "HINT DATE"),
    (r"-?\d[\d,.]*", "N"),
    (r"[ \t]+", " "),
)


@pytest.mark.parametrize("example", examples(README), ids=lambda example: example.title)
def test_readme_answers_what_it_says(server: Server, example: Example) -> None:
    # A reader begins when the server says that it is ready, which is later than the first answer of /healthz.
    eventually(lambda: "Ctrl-C" in (server.home / "serve.log").read_text(), 60, "the server never said it is ready")
    output = _run(server, example)
    if example.answer is None:
        return
    assert ("Paris" in output) == ("Paris" in example.answer), output
    try:
        shown = json.loads(example.answer)
    except ValueError:
        assert _masked(output) == _masked(example.answer)
    else:
        assert _shape(json.loads(output)) == _shape(shown)


def _run(server: Server, example: Example) -> str:
    code = example.code.replace("http://127.0.0.1:8000", server.url).replace("var/", f"{server.home}/")
    command = [sys.executable, "-c"] if example.language == "python" else ["bash", "-euc"]
    code = code.replace(".venv/bin/python", sys.executable)
    environment = os.environ | {"PARLANCE_HOME": str(server.home)}
    done = subprocess.run([*command, code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
    return done.stdout


def _masked(text: str) -> list[str]:
    for pattern, name in MASKS:
        text = re.sub(pattern, name, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def _shape(value: Any) -> Any:
    """Members and types of a JSON value; of a list those of its first item."""
    if isinstance(value, dict):
        return {key: _shape(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_shape(item) for item in value[:1]]
    return type(value).__name__
