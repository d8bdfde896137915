"""What a change touches, as CONTRIBUTING.md promises it; its table says which drills are done elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

from contract.errors import FAULTS, Fault
from tests.docs.pages import ROOT


def test_a_new_error_is_one_row() -> None:
    """Nothing but the table says a status: every row makes an error whose reply comes from its columns alone."""
    row = Fault("OUT_OF_TEA", 418, "out_of_tea", text="there is no tea", retry_after_s=60, should_retry=False)
    FAULTS[row.name] = row
    try:
        error = row()
    finally:
        del FAULTS[row.name]
    assert error.body()["error"]["code"] == "out_of_tea"
    assert error.headers() == {"Retry-After": "60", "x-should-retry": "false"}


def files_that_name(word: str) -> set[str]:
    """Product files whose text has `word`, package maps aside: a map names `<noun>.py` and is not redrawn."""
    rooms = ("concurrency", "contract", "text", "audio", "configs", "models", "state", "autoscaling", "deployments")
    files = [file for room in rooms for file in (ROOT / room).rglob("*") if file.suffix in (".py", ".toml")]
    files += [ROOT / "graph.py", ROOT / "launch/start.py", ROOT / "launch/welcome.py", ROOT / "docs/api.md"]
    named = re.compile(word, re.IGNORECASE)
    return {
        str(file.relative_to(ROOT))
        for file in files
        if file.name != "__init__.py" and named.search(file.read_text("utf-8"))
    }


def test_a_capability_is_at_most_seventeen_files() -> None:
    files = files_that_name("rerank")
    assert len(files) <= 17, sorted(files)
    folders = {Path(file).parent.as_posix() for file in files if Path(file).stem == "rerank"}
    assert folders == {
        "configs/catalog",
        "contract",
        "deployments/ingress/flows",
        "deployments/ingress/routes",
        "models",
    }
