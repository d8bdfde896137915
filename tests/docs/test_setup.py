"""Set-up: `requirements/venv.sh` chooses a Python, `requirements/install.py` installs with uv, or pip where that fails.

Every program that they call is a stand-in.
"""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import ROOT


def program(file: Path, script: str) -> str:
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


SENTENCE = "Parlance needs Python 3.11, 3.12 or 3.13: install one, or uv, or name it with PYTHON=/path/to/python3.11\n"


class Machine:
    """A folder of programs, and one to work in."""

    def __init__(self, folder: Path) -> None:
        self.programs, self.work = folder / "programs", folder / "work"
        self.programs.mkdir()
        self.work.mkdir()
        for name in ("sh", "rm", "mkdir", "touch", "chmod"):
            (self.programs / name).symlink_to(str(shutil.which(name)))

    def program(self, name: str, script: str) -> str:
        return program(self.programs / name, script)

    def python(self, name: str, *, fits: bool, makes_venv: bool = True) -> str:
        """`-c` asks for the version, `-V` names it, `-m venv FOLDER` makes a pip that says it was called."""
        venv = (
            f'mkdir -p "$3/bin"; echo "echo pip of {name}" >"$3/bin/pip"; chmod +x "$3/bin/pip"; exit {1 - makes_venv}'
        )
        return self.program(name, f"case $1 in -c) exit {1 - fits};; -V) echo {name};; -m) {venv};; esac")

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(ROOT / "requirements/venv.sh")],
            cwd=self.work,
            env={"PATH": str(self.programs), **environment},
            capture_output=True,
            text=True,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_one_that_is_named_or_the_first_that_fits_is_taken(machine: Machine) -> None:
    machine.python("python3.11", fits=False)  # a shim of a version that is not installed
    machine.python("python3.12", fits=True)
    machine.python("python3", fits=True)
    assert machine.run().stdout == "setting up .venv with python3.12\npip of python3.12\n"
    named = machine.python("mine", fits=True)
    assert machine.run(PYTHON=named).stdout == "setting up .venv with mine\npip of mine\n"


def test_uv_brings_one_but_not_for_one_that_is_named_and_does_not_fit(machine: Machine) -> None:
    machine.program("uv", "echo uv $*")
    named = machine.python("python3", fits=False)
    refused = machine.run(PYTHON=named)
    assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", SENTENCE)
    done = machine.run()
    assert done.returncode == 0
    pip = f"--require-hashes --only-binary :all: -r {ROOT}/requirements/pip.lock -r {ROOT}/requirements/uv.lock"
    assert done.stdout.splitlines()[1:] == [
        "uv venv --quiet --python 3.11 .venv",
        f"uv pip install --quiet --python .venv {pip}",
    ]


def test_one_sentence_where_nothing_fits_and_uv_cannot_bring_one_and_no_half_of_an_environment(
    machine: Machine,
) -> None:
    for uv in (None, "mkdir -p .venv/bin; touch .venv/bin/python; exit 2"):
        if uv:
            machine.program("uv", uv)
        done = machine.run()
        assert (done.returncode, done.stderr) == (1, SENTENCE)
        assert not (machine.work / ".venv").exists()
    machine.python("python3", fits=True, makes_venv=False)
    assert machine.run().returncode == 1
    assert not (machine.work / ".venv").exists()


@pytest.mark.parametrize(("free_gib", "warned"), [(6, True), (7, False)])
def test_too_little_disk_is_reported_before_anything_is_installed(
    machine: Machine, free_gib: int, warned: bool
) -> None:
    machine.python("python3", fits=True)
    table = f"Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda 9999999 1 {free_gib << 20} 1% /srv"
    machine.program("df", f"echo '{table}'")
    done = machine.run()
    assert done.returncode == 0
    warning = f"warning: {free_gib} GiB of disk are free here; Parlance needs about 7\n"
    assert done.stderr == (warning if warned else "")


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


def test_uv_installs_with_the_indexes_of_pip_but_its_own_variables_take_precedence(
    install: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "uv", f'echo "$UV_DEFAULT_INDEX|$UV_INDEX|$UV_FIND_LINKS|$@" >{tmp_path}/calls')
    assert install.main(str(tmp_path / "lock"), "--no-deps") == 0
    default, index, links, arguments = (tmp_path / "calls").read_text().split("|")
    assert default == "https://pypi.example.org/simple"
    assert index == "https://example.org/simple", "a folder that is missing would stop uv"
    assert links == f"{tmp_path.as_uri()},https://example.org/wheels", "what the environment says comes first"
    assert arguments.startswith(f"pip install --no-deps -r {tmp_path}/lock --python {tmp_path}/python")
    assert "installed 2 packages" in capsys.readouterr().out
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
