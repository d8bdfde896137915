"""Runs the README, and what other pages mark as wanting a real graph, against the server of this run.

Each block under `<!-- run -->` of the README and under `<!-- run on a graph -->` elsewhere, page by page, in order.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cluster.conftest import ROOT, Server, eventually
from tests.docs.answers import check_answer
from tests.docs.pages import PAGES, README, Example, examples

pytestmark = pytest.mark.cluster

ON_A_GRAPH = [example for page in PAGES if page != README for example in examples(page) if example.on_a_graph]


@pytest.mark.parametrize("example", [*examples(README), *ON_A_GRAPH], ids=lambda example: example.title)
def test_pages_answer_what_they_say(server: Server, example: Example) -> None:
    # A reader begins when the server says that it is ready, which is later than the first answer of /healthz.
    eventually(lambda: "Ctrl-C" in (server.home / "serve.log").read_text(), 60, "the server never said it is ready")
    output = _run(server, example)
    if example.answer is not None:
        check_answer(output, example.answer)


def _run(server: Server, example: Example) -> str:
    code = example.code.replace("http://127.0.0.1:8000", server.url).replace("var/", f"{server.home}/")
    command = [sys.executable, "-c"] if example.language == "python" else ["bash", "-euc"]
    code = code.replace(".venv/bin/python", sys.executable)
    environment = os.environ | {"PARLANCE_HOME": str(server.home)}
    done = subprocess.run([*command, code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
    return done.stdout
