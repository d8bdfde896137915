"""docs/clients.md has every program, the number of its steps that work, and those that cannot."""

from __future__ import annotations

import json

import pytest

from benchmarks.clients import table
from benchmarks.clients.programs import PROGRAMS, ROOM, Program
from benchmarks.clients.running import Verdict
from tests.docs.pages import ROOT, rows

CLIENTS = ROOT / "docs/clients.md"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_table_has_every_step(program: Program) -> None:
    (row,) = [row for row in rows(CLIENTS, "client", "release") if program.name in row[0]]
    assert row[1] == f"{program.package} {program.release}, {program.language}"
    cannot = [step for step in program.steps for one in row[3].split("<br>") if one.startswith(f"{step}: ")]
    assert len(cannot) == len(list(filter(None, row[3].split("<br>"))))
    assert int(row[2]) + len(cannot) == len(program.steps), "stale: python -m benchmarks.clients --write"


def test_every_program_is_on_the_list() -> None:
    there = {file.name for folder in ("python", "node") for file in (ROOM / folder).glob("*.*")}
    assert there - {"steps.py", "steps.mjs", "driven.mjs", "package.json", "package-lock.json"} == {
        one.name for one in PROGRAMS
    }


def test_steps_are_told_apart() -> None:
    for program in PROGRAMS:
        assert program.steps
        assert len(set(program.steps)) == len(program.steps), program.name


def test_the_lock_of_node_names_no_registry_and_every_program() -> None:
    """Each machine installs from the registry that it is told; what is installed is held by digests."""
    lock = json.loads((ROOM / "node/package-lock.json").read_text("utf-8"))
    packages = {name.removeprefix("node_modules/"): package for name, package in lock["packages"].items() if name}
    assert not [name for name, package in packages.items() if "resolved" in package or "integrity" not in package]
    assert {one.package: one.release for one in PROGRAMS if not one.is_python}.items() <= {
        name: package["version"] for name, package in packages.items()
    }.items()


def test_a_table_with_gaps_is_not_written() -> None:
    held = [Verdict(program, step, passed=True) for program in PROGRAMS for step in program.steps]
    for verdicts in (held[:1], [*held[:-1], Verdict(PROGRAMS[-1], "boxes in images", passed=None)]):
        with pytest.raises(SystemExit):
            table.write(verdicts)
