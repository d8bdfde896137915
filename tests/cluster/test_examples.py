"""Every script of docs/examples as it stands, beside the server of this run. The last one brings a Ray of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cluster.conftest import ROOT, Server

pytestmark = pytest.mark.cluster

SHOWN = {
    "chat": ["Paris", "tokens read", "one by one"],
    "search": ["To reset your password", "children under six", "`dimensions` 10000"],
    "speech": ["F1 (f)", "first sound after", "unknown_voice"],
    "transcription": ["words came back", "-->"],
    "voice_design": ["reached what was ordered: True", "ordered 210 Hz"],
    "decisions": ["team:", "withheld: True", "the order of the options moved"],
    "batch": ["is nearest to", "0.wav", "station"],
}
"""What each must print."""


def test_every_script_is_run() -> None:
    assert {file.stem for file in (ROOT / "docs/examples").glob("[!_]*.py")} == SHOWN.keys()


@pytest.mark.parametrize("script", SHOWN)
def test_a_script_shows_what_it_promises(server: Server, script: str, tmp_path: Path) -> None:
    if script == "batch" and not find_spec("pyarrow"):
        pytest.skip("no pyarrow here: `make setup-batch`")
    environment = os.environ | {
        "PARLANCE_HOME": str(server.home),
        "PYTHONPATH": str(ROOT),
    }
    if script != "batch":
        environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(server.home / "ray_token")}
    command = [sys.executable, "-m", f"docs.examples.{script}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert [text for text in SHOWN[script] if text not in done.stdout] == [], done.stdout
