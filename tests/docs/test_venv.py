"""`requirements/venv.sh`: which Python it takes, and what it says where none fits. Every program is a stand-in."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

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
        file = self.programs / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        return str(file)

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


def test_the_first_that_fits_is_taken(machine: Machine) -> None:
    machine.python("python3.11", fits=False)  # a shim of a version that is not installed
    machine.python("python3.12", fits=True)
    machine.python("python3", fits=True)
    done = machine.run()
    assert done.stdout == "setting up .venv with python3.12\npip of python3.12\n"


def test_the_one_that_is_named_is_taken(machine: Machine) -> None:
    machine.python("python3.11", fits=True)
    named = machine.python("mine", fits=True)
    assert machine.run(PYTHON=named).stdout == "setting up .venv with mine\npip of mine\n"


def test_a_named_one_that_does_not_fit_is_refused_even_beside_uv(machine: Machine) -> None:
    named = machine.python("mine", fits=False)
    machine.program("uv", "echo uv $*")
    done = machine.run(PYTHON=named)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", SENTENCE)


def test_uv_brings_one(machine: Machine) -> None:
    machine.python("python3", fits=False)
    machine.program("uv", "echo uv $*")
    done = machine.run()
    assert done.returncode == 0
    pip = f"--require-hashes --only-binary :all: -r {ROOT}/requirements/pip.lock -r {ROOT}/requirements/uv.lock"
    assert done.stdout.splitlines()[1:] == [
        "uv venv --quiet --python 3.11 .venv",
        f"uv pip install --quiet --python .venv {pip}",
    ]


@pytest.mark.parametrize("uv", ["mkdir -p .venv/bin; touch .venv/bin/python; exit 2", None])
def test_one_sentence_where_nothing_fits_and_uv_cannot_bring_one(machine: Machine, uv: str | None) -> None:
    if uv:
        machine.program("uv", uv)
    done = machine.run()
    assert (done.returncode, done.stderr) == (1, SENTENCE)
    assert not (machine.work / ".venv").exists()


def test_half_an_environment_is_removed(machine: Machine) -> None:
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
