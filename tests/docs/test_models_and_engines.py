"""The stanzas and the adapter of docs/models-and-engines.md do what the page says, in a copy of the catalogue."""

import math
import shutil
import struct
import sys
from pathlib import Path

import pytest

import configs
import models
from autoscaling.deployment import deployment_options
from contract.catalog import Catalog
from contract.embeddings import EmbeddingsJob
from contract.models import describe
from models.options import check
from tests.docs.pages import ROOT, marked

PAGE = ROOT / "docs/models-and-engines.md"


def catalog_with(folder: Path, noun: str, mark: str = "", profile: str = "embedded") -> Catalog:
    """The catalogue of a profile with the page's stanza at the end of its file."""
    shutil.copytree(configs.FOLDER / "catalog", folder)
    file = folder / f"{noun}.toml"
    stanza = marked(PAGE, f"stanza of {noun}{mark}").replace("serving.embedded", f"serving.{profile}")
    file.write_text(f"{file.read_text('utf-8')}\n{stanza}", "utf-8")
    return configs.load(profile, folder)


@pytest.mark.parametrize("profile", ["embedded", "production"])
async def test_a_stanza_is_a_model(tmp_path: Path, profile: str) -> None:
    model = catalog_with(tmp_path / "catalog", "chat", profile=profile).chat["my-model"]
    check(model)
    options = deployment_options(model)
    assert (options["name"], options["ray_actor_options"]["num_cpus"]) == ("chat-my-model", 0.3)
    assert describe(model)["runtime"] == "my-model"


async def test_a_stanza_says_how_its_model_thinks(tmp_path: Path) -> None:
    model = catalog_with(tmp_path / "catalog", "chat", " that thinks").chat["my-thinker"]
    assert model.thinking
    assert model.thinking.allowed == {
        "enable_thinking": "boolean",
        "preserve_thinking": "boolean",
        "style": ("brief", "full"),
    }
    assert (model.thinking.levels, model.thinking.budgets) == (("low", "high"), {"low": 1024})


async def test_a_class_and_a_stanza_are_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "letters.py").write_text(marked(PAGE, "adapter of embeddings"), "utf-8")
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    try:
        model = catalog_with(tmp_path / "catalog", "embeddings").embeddings["letters"]
        engine = models.load(model)
    finally:
        sys.modules.pop("models.letters", None)
    await engine.check_health()
    vectors = await engine.embed(EmbeddingsJob(("a cat", "")))
    engine.close()
    assert vectors.dimensions == model.dimensions
    cat, nothing = (struct.unpack("<26f", row) for row in vectors.rows())
    assert math.isclose(sum(x * x for x in cat), 1, abs_tol=1e-6)
    assert set(nothing) == {0.0}
