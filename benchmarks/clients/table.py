"""The table, and where it stands in the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.clients.programs import PROGRAMS, Program
from benchmarks.clients.running import Verdict

PAGE = Path(__file__).parents[2] / "docs/clients.md"
BEGIN, END = "<!-- made by python -m benchmarks.clients --write -->\n", "<!-- end -->"
HEAD = "| client | release | steps that work | cannot, and why |\n|---|---|---|---|\n"
WORDS = {True: "works", False: "**fails**", None: "not run"}


def line(verdict: Verdict) -> str:
    """One step, as it is told while programs run."""
    program, word = verdict.program, WORDS[verdict.passed]
    says = verdict.says.replace("\n", " ").replace("|", "/")
    if verdict.cannot:
        word, says = "cannot", verdict.cannot
    return f"| {program.client} ({program.language}) | {verdict.step} | {word} | {says} |"


def table(verdicts: Sequence[Verdict]) -> str:
    """One row for each program that was run, for the page."""
    return HEAD + "".join(_row(program, [each for each in verdicts if each.program == program]) for program in PROGRAMS)


def _row(program: Program, verdicts: Sequence[Verdict]) -> str:
    works = sum(not each.cannot for each in verdicts)
    cannot = "<br>".join(f"{each.step}: {each.cannot}" for each in verdicts if each.cannot)
    release = f"`{program.package}` {program.release}, {program.language}"
    return (
        f"| [{program.client}](../{program.file.relative_to(PAGE.parent.parent)}) | {release} | {works} | {cannot} |\n"
    )


def write(verdicts: Sequence[Verdict]) -> None:
    """Puts the table into the page. Raises SystemExit if not every step was run and ended as it should."""
    if {each.program for each in verdicts} != set(PROGRAMS) or not all(each.passed for each in verdicts):
        raise SystemExit("the table is written only where every program was run and held")
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}{table(verdicts)}{END}{after}", "utf-8")
