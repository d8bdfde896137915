"""`requirements/install.py`: uv installs with pip's indexes, and pip where uv fails. Both are stand-ins."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import ROOT

SETTINGS = """\
:env:.find-links='{here} https://example.org/wheels'
global.extra-index-url='file:///nowhere/simple https://example.org/simple'
global.index-url='https://pypi.example.org/simple'
global.find-links='/ignored'
global.timeout='180'
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, in an environment of its own whose programs write down how they are called."""
    spec = importlib.util.spec_from_file_location("install", ROOT / "requirements/install.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "settings").write_text(SETTINGS.format(here=tmp_path.as_uri()))
    program(
        tmp_path / "python",
        f'case "$*" in *config*) cat {tmp_path}/settings;; *) echo pip "$@" >>{tmp_path}/calls;; esac',
    )
    (tmp_path / "lock").write_text("a==1 \\\n    --hash=sha256:0\nb==2\n")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS", "UV_INDEX_STRATEGY"):
        monkeypatch.delenv(name, raising=False)
    return module


def program(file: Path, script: str) -> None:
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_uv_installs_with_the_indexes_of_pip(
    install: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path / "uv", f'echo "$UV_DEFAULT_INDEX|$UV_INDEX|$UV_FIND_LINKS|$@" >{tmp_path}/calls')
    assert install.main(str(tmp_path / "lock"), "--no-deps") == 0
    default, index, links, arguments = (tmp_path / "calls").read_text().split("|")
    assert default == "https://pypi.example.org/simple"
    assert index == "https://example.org/simple", "a folder that is missing would stop uv"
    assert links == f"{tmp_path.as_uri()},https://example.org/wheels", "what the environment says comes first"
    assert arguments.startswith(f"pip install --no-deps -r {tmp_path}/lock --python {tmp_path}/python")
    assert "installed 2 packages" in capsys.readouterr().out


def test_variables_of_uv_take_precedence(install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mine.example.org")
    assert install.environment()["UV_DEFAULT_INDEX"] == "https://mine.example.org"


@pytest.mark.parametrize("status", [0, 3])
def test_pip_installs_where_uv_fails(install: ModuleType, tmp_path: Path, status: int) -> None:
    program(tmp_path / "uv", "exit 2")
    if status:
        program(tmp_path / "python", f"exit {status}")
    assert install.main(str(tmp_path / "lock"), "--require-hashes") == status
    if not status:
        assert (tmp_path / "calls").read_text() == f"pip -m pip install --require-hashes -r {tmp_path}/lock --quiet\n"
