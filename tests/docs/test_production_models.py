"""The table of docs/production-models.md against the catalogue and the tests that it names."""

from __future__ import annotations

import re

import configs
from tests.docs.pages import ROOT, rows

PAGE = ROOT / "docs/production-models.md"
ROWS = rows(PAGE, "model", "twin")
MODELS = {model.deployment: model for model in configs.load("production").deployed()}


def test_every_model_of_production_has_a_row() -> None:
    assert sorted(row[0] for row in ROWS) == sorted(MODELS)
    assert len([model for model in MODELS.values() if model.noun != "voice_design"]) == 16


def files_of(row: list[str]) -> list[str]:
    """Those that the row names for what CI runs."""
    return re.findall(r"\]\(\.\./(tests/\S+?\.py)\)", row[2])


def source_of(file: str) -> str:
    """Of the tests in `file`, and of the child process that they look at, where there is one."""
    child = ROOT / file.replace("/test_", "/").replace(".py", "_child.py")
    return "".join(path.read_text("utf-8") for path in (ROOT / file, child) if path.is_file())


def test_a_row_names_tests_of_its_adapter() -> None:
    for row in ROWS:
        name, twin, runs, shows = row
        model = MODELS[name]
        assert all((twin, shows, files_of(row))), name
        for file in files_of(row):
            if not file.startswith("tests/twins"):
                text = source_of(file)
                assert model.serving
                assert model.serving.adapter.split(":")[0] in text, name
                assert ("needs_environment" in text) == ("where its environment is" in runs), name


def test_ci_makes_the_environment_that_rows_want_before_it_tests() -> None:
    done = (ROOT / ".ci/run").read_text("utf-8").splitlines()
    assert done.index("make setup-qwen") < done.index("make test-units")


def test_the_tests_of_the_table_know_each_language_model_and_encoder() -> None:
    from tests.twins.language_child import TWIN_OF

    wanted = {
        str(model.serving.weights) for model in MODELS.values() if model.serving and "engine" in model.serving.options
    }
    assert wanted - {"voxtral-mini-3b"} == set(TWIN_OF)
