"""Every script of docs/examples as it stands, beside the server of this run; `batch.py` brings a Ray of its own.

The others run one after the other in one process, which connects to the graph once.
"""

import os
import subprocess
import sys
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
    "data_set": ["3 answered, 0 failed, 0 were there already: var/examples/answers.jsonl"],
    "decisions": ["team:", "withheld: True", "the order of the options moved"],
}
"""What each must print."""


LIMIT_S = 600
"""Of a script that hangs."""

ALTERNATIVES = ROOT / ".venv/batch"
"""The environment of Ray Data."""


def test_every_script_is_run() -> None:
    assert {file.stem for file in (ROOT / "docs/examples").glob("[!_]*.py")} == {*SHOWN, "batch"}


ALL = """
import runpy, sys
names, sys.argv[1:] = sys.argv[1:], []
for name in names:
    print(f"\\f{name}")
    runpy.run_module(f"docs.examples.{name}", run_name="__main__")
"""
"""Runs scripts as programs; a form feed and its name stand before what each prints."""


@pytest.fixture(scope="module")
def outputs(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each script prints."""
    whole = printed([sys.executable, "-c", ALL, *SHOWN], tmp_path_factory.mktemp("examples"), server.token)
    return dict(part.split("\n", 1) for part in whole.split("\f")[1:])


@pytest.mark.parametrize("script", SHOWN)
def test_a_script_shows_what_it_promises(outputs: dict[str, str], script: str) -> None:
    assert [text for text in SHOWN[script] if text not in outputs[script]] == [], outputs[script]


@pytest.mark.skipif(not (ALTERNATIVES / "done").exists(), reason="needs `make setup-batch`")
def test_a_data_set_goes_through_the_models_without_the_graph(server: Server, tmp_path: Path) -> None:
    home = {"PARLANCE_HOME": str(server.home)}
    command = [str(ALTERNATIVES / "bin/python"), "-m", "docs.examples.batch"]
    lines = printed(command, tmp_path, home).splitlines()
    train, bread = "The train to the coast leaves at nine.", "We baked bread with olives and salt."
    assert f"{train}  is nearest to  The railway station was full of people." in lines
    assert f"{bread}  is nearest to  Soup tastes better on the second day." in lines
    sounds = {line.split()[0] for line in lines if ".wav" in line}
    assert sounds == {"0.wav", "1.wav", "2.wav", "3.wav"}
    assert any("railway station" in line for line in lines if line.split()[0] in sounds)
    assert list((tmp_path / "var/examples/batch/vectors").glob("*.parquet"))


def printed(command: list[str], folder: Path, settings: dict[str, str]) -> str:
    """What a command prints in `folder`, where it may write."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | settings
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout
