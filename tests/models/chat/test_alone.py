"""The block of docs/python-client.md that asks a chat model without Ray."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.docs.pages import ROOT, marked
from tests.models.conftest import Fetched


def test_the_page_asks_a_model_that_it_loads_itself(fetched: Fetched) -> None:
    home = fetched("smollm2-135m-instruct").parent.parent
    code = marked(ROOT / "docs/python-client.md", "run without Ray")
    environment = os.environ | {"PARLANCE_HOME": str(home), "PARLANCE_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout.splitlines()[-1]
