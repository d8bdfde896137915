"""The table of docs/production-models.md against the catalogue."""

from __future__ import annotations

import configs
from tests.docs.pages import ROOT, rows

ROWS = rows(ROOT / "docs/production-models.md", "model", "twin")
MODELS = {model.deployment: model for model in configs.load("production").deployed()}


def test_every_model_of_production_has_a_whole_row() -> None:
    assert sorted(row[0] for row in ROWS) == sorted(MODELS)
    assert [row[0] for row in ROWS if not all(row)] == []
