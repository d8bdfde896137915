"""Programs under the kit: those that work, that do not, that end early, that never end."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.clients import running
from benchmarks.clients.__main__ import is_well
from benchmarks.clients.programs import PROGRAMS, ROOM, Program
from benchmarks.clients.running import Runner

PROGRAM = PROGRAMS[0]
HEAD = f"""
import os, sys
sys.path.insert(0, {str(ROOM / "python")!r})
from steps import run, step
"""


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


def test_a_step_works_unless_it_raises(runner: Runner, tmp_path: Path) -> None:
    text = """
@step("good")
def good(): print("{}", "clients print things")
@step("good, async")
async def anew(): return None
@step("bad")
def bad(): assert 1 == 2, "no"
run()
"""
    assert tried(runner, tmp_path, text) == [
        ("good", True, ""),
        ("good, async", True, ""),
        ("bad", False, "AssertionError: no"),
    ]


def test_what_cannot_work_must_fail_as_it_says(runner: Runner, tmp_path: Path) -> None:
    text = """
@step("refused", cannot="not offered", error="404")
def refused(): raise ValueError("status 404")
@step("otherwise", cannot="not offered", error="404")
def otherwise(): raise ValueError("status 500")
@step("works", cannot="not offered", error="404")
def works(): pass
run()
"""
    assert tried(runner, tmp_path, text) == [
        ("refused", True, "not offered"),
        ("otherwise", False, "fails in another way than it should: ValueError: status 500"),
        ("works", False, "works now, although it should not: not offered"),
    ]


def test_a_step_that_cannot_be_tried_is_not_run_and_says_why(runner: Runner, tmp_path: Path) -> None:
    text = """
from steps import NotHere
@step("elsewhere")
def elsewhere(): raise NotHere("no build for this platform")
@step("here")
def here(): pass
run()
"""
    assert tried(runner, tmp_path, text) == [("elsewhere", None, "no build for this platform"), ("here", True, "")]


@pytest.mark.parametrize(
    ("ci", "held", "well"),
    [("", True, True), ("", None, True), ("", False, False), ("true", True, True), ("true", None, False)],
)
def test_in_ci_what_could_not_be_tried_has_failed(
    ci: str, held: bool | None, well: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    assert is_well(held) is well


def test_a_client_that_is_a_part_of_the_service_runs_in_its_environment(tmp_path: Path) -> None:
    runner = Runner("http://127.0.0.1:1", "a-key", tmp_path / "no/python", None)
    text = '@step("here")\ndef here(): pass\nrun()\n'
    assert tried(runner, tmp_path, text, is_ours=True) == [("here", True, "")]


def test_a_program_that_breaks_has_not_worked(runner: Runner, tmp_path: Path) -> None:
    ((name, held, says),) = tried(runner, tmp_path, '@step("never")\ndef never(): pass\nraise SystemExit("broken")\n')
    assert (name, held) == ("never", False)
    assert says.endswith("broken")


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
    assert tried(runner, tmp_path, text) == [
        ("quick", True, ""),
        ("slow", False, "the program did not report it: no end after 8 s"),
    ]


def test_a_program_knows_address_and_key_and_no_other(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-somebody")
    show = '@step("seen")\ndef seen():\n    raise ValueError(sorted(os.environ.items()))\nrun()\n'
    ((_, _, seen),) = tried(runner, tmp_path, show)
    assert "a-key" in seen
    assert "of-somebody" not in seen
    assert "a-key" not in repr(runner)


def test_without_node_its_programs_are_not_run(runner: Runner) -> None:
    node = next(program for program in PROGRAMS if not program.is_python)
    assert {(one.passed, one.says) for one in runner.run(node)} == {(None, "no Node here")}


@pytest.mark.parametrize("line", [b"", b"null", b"[]", b'{"other": 1}', b"\xff", json.dumps("step").encode()])
def test_other_output_tells_nothing(line: bytes) -> None:
    assert running._record(line) is None


def test_a_step_that_is_not_in_the_file_is_not_counted() -> None:
    told = [{"step": "another", "cannot": "", "failed": "", "is_expected": True}]
    verdicts = running.judged(replace(PROGRAM), told, "exit 0")
    assert {one.passed for one in verdicts} == {False}
