"""Every script of docs/examples, run over engines that obey; `tests/cluster/test_examples.py` has real ones."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import configs
import graph
from deployments.client import Connection
from tests.catalogs import embedded
from tests.docs import test_python_client
from tests.docs.pages import ROOT

FOLDER = ROOT / "docs/examples"
COMMAND = "data_set"
"""A program with arguments, and no notebook; `test_data_set.py` has its tests."""
SCRIPTS = sorted(file for file in FOLDER.glob("*.py") if file.stem not in ("__init__", COMMAND))
ON_THE_GRAPH = [script for script in SCRIPTS if script.stem != "batch"]

g = test_python_client.g


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_is_a_notebook_that_says_what_it_shows(script: Path) -> None:
    text = script.read_text("utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    cells = text.split("\n# %% ")[1:]
    assert len(cells) >= 2
    for cell in cells:
        title, _, code = cell.partition("\n")
        assert title.endswith((".", "?", ":")), f"a cell does not say what it does: {title}"
        ast.parse(code)


@pytest.mark.parametrize("script", ON_THE_GRAPH, ids=lambda script: script.stem)
def test_a_script_runs(
    script: Path,
    g: Connection,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(graph, "connect", lambda: g)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "nowhere")
    names = {"__name__": "__main__"}
    for number, cell in enumerate(script.read_text("utf-8").split("\n# %% ")):
        title, _, code = cell.partition("\n") if number else ("", "", cell)
        exec(compile(code, str(script), "exec"), names)
        printed = capsys.readouterr().out.strip()
        prints = any(ast.unparse(part).startswith("print(") for part in ast.parse(code).body)
        assert printed or not prints, f"the cell `{title}` printed nothing"


@pytest.fixture
def batch(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the script of data sets defines, over engines that obey. Ray Data itself need not be installed for this."""
    tree = ast.parse((FOLDER / "batch.py").read_text("utf-8"))
    kept = [
        node
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Assign))
        and not ast.unparse(node).startswith(("import ray", "from ray", "DataContext"))
    ]
    ends = next(index for index, node in enumerate(kept) if ast.unparse(node).startswith("embedded"))
    monkeypatch.setattr(configs, "load", lambda profile: embedded())
    namespace: dict[str, Any] = {"__name__": "batch"}
    exec(compile(ast.Module(kept[:ends], []), "batch.py", "exec"), namespace)
    return namespace


def test_a_data_set_passes_the_adapters_batch_by_batch(batch: dict[str, Any]) -> None:
    texts = {"text": np.array(["one", "three"], dtype=object)}
    vectors = asyncio.run(batch["Embed"]("all-minilm-l6-v2")(texts))["vector"]
    assert vectors.shape == (2, 384)
    assert vectors[:, 0].tolist() == [3, 5]
    spoken = asyncio.run(batch["Speak"]("supertonic-3")(texts))["bytes"]
    assert [b"three" in data for data in spoken] == [False, True]
    files = {"path": np.array(["a", "b"]), "bytes": np.array([b"hello\nworld", b"again"], dtype=object)}
    heard = asyncio.run(batch["Transcribe"]("voxtral-mini-transcribe")(files))
    assert heard.keys() == {"path", "heard", "seconds"}
    assert heard["heard"].tolist() == ["hello world", "again"]
    assert heard["seconds"].tolist() == [2, 1]
