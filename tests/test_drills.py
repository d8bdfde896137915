"""What a change touches, as CONTRIBUTING.md promises it. Each drill is done here in a temporary folder, or counted.

A fifth speech engine has tests of its own: tests/configs/test_fifth_engine.py and tests/api/test_fifth_engine.py.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import configs
from autoscaling.deployment import deployment_options
from contract.errors import FAULTS, Fault
from contract.models import describe
from models.options import check
from tests.docs.pages import ROOT

LLM = """
[my-model]
owned_by = "me"
tier = "default"
context_window = 8192
price = { input_tokens = 20_000, output_tokens = 40_000 }

[my-model.serving.PROFILE]
adapter = "models.chat:VllmChat"
runtime = "my-model"
weights = "my-model"
threads = 2
options = { engine = { dtype = "bfloat16", max_num_seqs = 8, enforce_eager = true } }
deployment = { ray_actor_options = { num_cpus = 0.3 } }
"""


@pytest.fixture
def catalog_folder(tmp_path: Path) -> Path:
    """A copy of the catalogue."""
    return Path(shutil.copytree(configs.FOLDER / "catalog", tmp_path / "catalog"))


@pytest.mark.parametrize("profile", ["embedded", "production"])
def test_another_llm_is_one_stanza(catalog_folder: Path, profile: str) -> None:
    file = catalog_folder / "chat.toml"
    file.write_text(file.read_text("utf-8") + LLM.replace("PROFILE", profile), "utf-8")
    model = configs.load(profile, catalog_folder).chat["my-model"]
    check(model)
    assert deployment_options(model)["name"] == "chat-my-model"
    assert describe(model)["runtime"] == "my-model"


def test_a_profile_is_a_config_file(tmp_path: Path) -> None:
    before = configs.profiles()
    for file in configs.FOLDER.glob("*.yaml"):
        shutil.copy(file, tmp_path)
    shutil.copy(configs.FOLDER / "embedded.yaml", tmp_path / "laptop.yaml")
    assert configs.profiles(tmp_path) == tuple(sorted([*before, "laptop"]))


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
