"""Runs one program in its own interpreter, within a time, and judges what it told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.clients.programs import ROOM, Program

PROGRAM_S = 300
"""Of one program, engines that wake and a busy machine included."""
MOST_CHARS = 600
"""Of what a program said on its error output."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one step.

    Attributes:
        held: whether it ended as the program says; None where it was not run.
        cannot: why it cannot work; empty where it works.
        says: what went wrong, or why it was not run.
    """

    program: Program
    step: str
    held: bool | None
    cannot: str = ""
    says: str = ""


@dataclass(frozen=True, slots=True)
class Runner:
    """Where programs are run, and against what.

    Attributes:
        url: of the graph, without a path.
        key: with every scope.
        python: of the environment that holds the clients.
        node: the interpreter. None: there is none here, or its clients are not installed.
    """

    url: str
    key: str = field(repr=False)
    python: Path
    node: Path | None

    def run(self, program: Program) -> list[Verdict]:
        """One verdict on each step of the program."""
        interpreter = self._interpreter(program)
        if interpreter is None:
            return [Verdict(program, step, None, says="no Node here") for step in program.steps]
        with tempfile.TemporaryDirectory(prefix="conformance-") as home:
            return judged(program, *_run([str(interpreter), str(program.file)], self._environment(home), home))

    def _interpreter(self, program: Program) -> Path | None:
        if not program.is_python:
            return self.node
        return Path(sys.executable) if program.is_ours else self.python

    def _environment(self, home: str) -> dict[str, str]:
        """All that a program knows: nothing of ours but address and key, and no key of another service."""
        ours = {"HOME": home, "PARLANCE_URL": self.url, "PARLANCE_KEY": self.key}
        # LangChain would fetch OpenAI's table of tokens; LlamaIndex brings it along.
        tables = self.python.parent.parent.glob("lib/python3*/site-packages/llama_index/core/_static/tiktoken_cache")
        return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"} | ours | {"TIKTOKEN_CACHE_DIR": str(*tables)}


def node_here() -> Path | None:
    """Node, where it is installed together with the clients."""
    found = shutil.which("node")
    return Path(found) if found and (ROOM / "node/node_modules").is_dir() else None


def judged(program: Program, told: list[dict[str, Any]], says: str) -> list[Verdict]:
    """One verdict on each step in the file; `says` is of the steps of which nothing was told."""
    by_step = {one["step"]: one for one in told}
    return [_verdict(program, step, by_step.get(step), says) for step in program.steps]


def _verdict(program: Program, step: str, told: dict[str, Any] | None, says: str) -> Verdict:
    if told is None:
        return Verdict(program, step, held=False, says=f"nothing was told of it: {says}")
    if told.get("not_run"):
        return Verdict(program, step, held=None, says=told["not_run"])
    cannot, failed = told["cannot"], told["failed"]
    if not cannot:
        return Verdict(program, step, held=not failed, says=failed)
    if not failed:
        return Verdict(program, step, held=False, says=f"works now, though it should not: {cannot}")
    if not told["is_expected"]:
        return Verdict(program, step, held=False, says=f"fails otherwise than it should: {failed}")
    return Verdict(program, step, held=True, cannot=cannot)


def _run(command: list[str], environment: dict[str, str], folder: str) -> tuple[list[dict[str, Any]], str]:
    """What the program told, and the end of what it said otherwise."""
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=PROGRAM_S)
        output, says = done.stdout, done.stderr.decode(errors="replace").strip()[-MOST_CHARS:]
        says = says or f"exit {done.returncode}"
    except subprocess.TimeoutExpired as late:
        output, says = late.stdout or b"", f"no end after {PROGRAM_S} s"
    return [told for line in output.splitlines() if (told := _told(line))], says


def _told(line: bytes) -> dict[str, Any] | None:
    """What a line tells of a step. Clients print other things as well."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) and "step" in told else None
