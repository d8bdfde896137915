"""Programs under the kit: those that work, that do not, that end early, that never end; and their table."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.clients import running, table
from benchmarks.clients.__main__ import is_well
from benchmarks.clients.programs import PROGRAMS, ROOM, Program
from benchmarks.clients.running import Runner, Verdict
from tests.docs.pages import ROOT, rows

HEAD = f"""
import os, sys
sys.path.insert(0, {str(ROOM / "python")!r})
from steps import NotHere, run, step
"""
NEVER = '@step("never")\ndef never(): pass\n'


class Written(Program):
    """A program that a test writes."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / self.name


@pytest.fixture
def runner() -> Runner:
    return Runner("http://127.0.0.1:1", "a-key", Path(sys.executable), None)


def tried(runner: Runner, folder: Path, text: str, **about: bool) -> list[tuple[str, bool | None, str]]:
    """Each step of a program with this text: its name, whether it passed, and what is said of it."""
    (folder / "written.py").write_text(HEAD + text)
    program = Written("written.py", "a client", "openai", **about)
    object.__setattr__(program, "folder", folder)
    return [(one.step, one.passed, one.cannot or one.says) for one in runner.run(program)]


def test_a_step_works_unless_it_raises_and_what_cannot_work_must_fail_as_it_says(
    runner: Runner, tmp_path: Path
) -> None:
    text = """
@step("good")
def good(): print("{}", "clients print things")
@step("good, async")
async def anew(): return None
@step("bad")
def bad(): assert 1 == 2, "no"
@step("refused", cannot="not offered", error="404")
def refused(): raise ValueError("status 404")
@step("otherwise", cannot="not offered", error="404")
def otherwise(): raise ValueError("status 500")
@step("works", cannot="not offered", error="404")
def works(): pass
@step("elsewhere")
def elsewhere(): raise NotHere("no build for this platform")
run()
"""
    assert tried(runner, tmp_path, text) == [
        ("good", True, ""),
        ("good, async", True, ""),
        ("bad", False, "AssertionError: no"),
        ("refused", True, "not offered"),
        ("otherwise", False, "fails in another way than it should: ValueError: status 500"),
        ("works", False, "works now, although it should not: not offered"),
        ("elsewhere", None, "no build for this platform"),
    ]


def test_in_ci_what_could_not_be_tried_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    for ci, verdicts in (("", {True: True, None: True, False: False}), ("true", {True: True, None: False})):
        monkeypatch.setenv("CI", ci)
        for held, well in verdicts.items():
            assert is_well(held) is well, (ci, held)


def test_without_node_its_programs_are_not_run(runner: Runner) -> None:
    node = next(program for program in PROGRAMS if not program.is_python)
    assert {(one.passed, one.says) for one in runner.run(node)} == {(None, "no Node here")}


def test_a_client_that_is_a_part_of_the_service_runs_in_its_environment(tmp_path: Path) -> None:
    runner = Runner("http://127.0.0.1:1", "a-key", tmp_path / "no/python", None)
    assert tried(runner, tmp_path, f"{NEVER}run()\n", is_ours=True) == [("never", True, "")]


def test_a_program_that_breaks_has_not_worked(runner: Runner, tmp_path: Path) -> None:
    ((name, held, says),) = tried(runner, tmp_path, f'{NEVER}raise SystemExit("broken")\n')
    assert (name, held, says.endswith("broken")) == ("never", False, True)


def test_a_program_that_never_ends_is_stopped_and_keeps_what_it_told(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "PROGRAM_S", 8)
    text = """
import threading
@step("quick")
def quick(): pass
@step("slow")
def slow(): threading.Event().wait()
run()
"""
    slow = ("slow", False, "the program did not report it: no end after 8 s")
    assert tried(runner, tmp_path, text) == [("quick", True, ""), slow]


def test_a_program_knows_its_key_and_no_other(runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-somebody")
    show = '@step("seen")\ndef seen():\n    raise ValueError(sorted(os.environ.items()))\nrun()\n'
    ((_, _, seen),) = tried(runner, tmp_path, show)
    assert ("a-key" in seen, "of-somebody" in seen, "a-key" in repr(runner)) == (True, False, False)


def test_other_output_tells_nothing_and_an_unknown_step_is_not_counted() -> None:
    for line in (b"", b"null", b"[]", b'{"other": 1}', b"\xff", b'"step"'):
        assert running._record(line) is None, line
    told = [{"step": "another", "cannot": "", "failed": "", "is_expected": True}]
    assert {one.passed for one in running.judged(PROGRAMS[0], told, "exit 0")} == {False}


def test_the_page_has_every_program_and_the_number_of_its_steps_that_work() -> None:
    listed = rows(ROOT / "docs/clients.md", "client", "release")
    for program in PROGRAMS:
        (row,) = [row for row in listed if program.name in row[0]]
        assert row[1] == f"{program.package} {program.release}, {program.language}"
        told = [one for one in row[3].split("<br>") if one]
        cannot = [step for step in program.steps for one in told if one.startswith(f"{step}: ")]
        stale = "stale: python -m benchmarks.clients --write"
        assert (len(cannot), int(row[2]) + len(cannot)) == (len(told), len(program.steps)), stale
    there = {file.name for folder in ("python", "node") for file in (ROOM / folder).glob("*.*")}
    others = {"steps.py", "steps.mjs", "driven.mjs", "package.json", "package-lock.json"}
    assert there - others == {one.name for one in PROGRAMS}


def test_a_table_with_gaps_is_not_written() -> None:
    held = [Verdict(program, step, passed=True) for program in PROGRAMS for step in program.steps]
    for verdicts in (held[:1], [*held[:-1], Verdict(PROGRAMS[-1], "boxes in images", passed=None)]):
        with pytest.raises(SystemExit):
            table.write(verdicts)


def test_the_lock_of_node_names_no_registry_and_every_program() -> None:
    """Each machine installs from the registry that it is told; what is installed is held by digests."""
    lock = json.loads((ROOM / "node/package-lock.json").read_text("utf-8"))
    packages = {name.removeprefix("node_modules/"): package for name, package in lock["packages"].items() if name}
    assert not [name for name, package in packages.items() if "resolved" in package or "integrity" not in package]
    versions = {name: package["version"] for name, package in packages.items()}
    assert {one.package: one.release for one in PROGRAMS if not one.is_python}.items() <= versions.items()
