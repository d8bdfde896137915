"""The table of docs/production-models.md against the catalogue and tests that it names; the script that it shows."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import configs
from benchmarks.speed.asks import ASKS
from benchmarks.speed.gpu import main
from contract.catalog import CATALOG_TYPES
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/production-models.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text("utf-8").splitlines()
    if line.startswith("| `")
]
MODELS = {model.deployment: model for model in configs.load("production").deployed()}


def test_every_model_of_production_has_a_row() -> None:
    assert sorted(row[0].strip("`") for row in ROWS) == sorted(MODELS)
    assert len([model for model in MODELS.values() if model.noun != "voice_design"]) == 16


@pytest.fixture(scope="module")
def collected() -> set[str]:
    """What `make test-all` runs of the files that the table names: their tests' ids."""
    chosen = ["-m", "not (slow or cluster)"]
    assert f'{chosen[0]} "{chosen[1]}"' in (ROOT / "Makefile").read_text("utf-8")
    files = sorted({file for row in ROWS for file in files_of(row)})
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", *chosen, *files]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stdout[-2000:]
    return {line for line in listed.stdout.splitlines() if "::" in line}


def files_of(row: list[str]) -> list[str]:
    """Those that the row names for what CI runs."""
    return re.findall(r"\]\(\.\./(tests/\S+?\.py)\)", row[2])


def source_of(file: str) -> str:
    """Of the tests in `file`, and of the child process that they look at, where there is one."""
    child = ROOT / file.replace("/test_", "/").replace(".py", "_child.py")
    return "".join(path.read_text("utf-8") for path in (ROOT / file, child) if path.is_file())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_tests_that_run_and_the_command_of_its_model(collected: set[str], row: list[str]) -> None:
    name, twin, runs, shows, command = row
    model = MODELS[name.strip("`")]
    assert all((twin, shows))
    assert files_of(row)
    for file in files_of(row):
        if file.startswith("tests/twins"):
            assert f"{file}::test_what_is_asked_on_a_gpu_can_be_asked[{model.id}]" in collected
            continue
        assert any(test.startswith(f"{file}::") for test in collected)
        text = source_of(file)
        assert model.serving
        assert model.serving.adapter.split(":")[0] in text, "the tests are of the adapter that the stanza names"
        assert ("needs_environment" in text) == ("where its environment is" in runs)
    assert command == f"`python -m benchmarks.speed.gpu {model.deployment}`"


def test_ci_makes_the_environment_that_rows_want_before_it_tests() -> None:
    done = (ROOT / ".ci/run").read_text("utf-8").splitlines()
    assert done.index("make setup-qwen") < done.index("make test-all")


def test_the_tests_of_the_table_know_each_language_model_and_encoder() -> None:
    from tests.twins.language_child import TWIN_OF

    wanted = {
        str(model.serving.weights) for model in MODELS.values() if model.serving and "engine" in model.serving.options
    }
    assert wanted - {"voxtral-mini-3b"} == set(TWIN_OF)


def test_the_script_knows_every_capability() -> None:
    assert set(ASKS) == set(CATALOG_TYPES)


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.speed.gpu", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_without_a_gpu_it_says_so_in_one_sentence() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    refused = script("bge-m3")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr.strip() == (
        "torch finds no GPU here, and this shows nothing without one: run it where `nvidia-smi` lists a GPU"
    )


def test_its_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    for word in ("launch weights lock production", "--list", "--recording", "decision-v1"):
        assert word in told


def test_it_lists_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    told = capsys.readouterr().out
    assert all(model.id in told for model in MODELS.values())


def test_an_unknown_model_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["gemma-9"])
    assert "profile `production` has no model `gemma-9`" in capsys.readouterr().err
