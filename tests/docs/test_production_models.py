"""The table of docs/production-models.md against the catalogue."""

from __future__ import annotations

import configs
from tests.docs.pages import ROOT, rows

PAGE = ROOT / "docs/production-models.md"
ROWS = rows(PAGE, "model", "twin")
MODELS = {model.deployment: model for model in configs.load("production").deployed()}


def test_every_model_of_production_has_a_row() -> None:
    assert sorted(row[0] for row in ROWS) == sorted(MODELS)
    assert len([model for model in MODELS.values() if model.noun != "voice_design"]) == 16


def test_a_row_names_the_command_of_its_model() -> None:
    for name, twin, _, shows, command in ROWS:
        assert all((twin, shows)), name
        assert command == f"python -m benchmarks.speed.gpu {name}"
