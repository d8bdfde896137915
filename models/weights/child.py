"""A Python process of our own for one piece of work, and the line that says why it failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from models.weights.files import WeightsError

PROJECT = Path(__file__).resolve().parents[2]


def run_child(arguments: list[str], *, doing: str, env: dict[str, str] | None = None) -> str:
    """What this interpreter, run with `arguments`, writes to standard output. Raises WeightsError where it fails."""
    child = subprocess.run(
        [sys.executable, *arguments],
        cwd=PROJECT,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode:
        raise WeightsError(f"could not {doing}: {last_line(child.stderr)}")
    return child.stdout


def last_line(text: str) -> str:
    """The line that most likely says why: pip's last ERROR, else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no reason was given"])[-1]
