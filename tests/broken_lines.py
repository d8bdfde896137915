"""Breaks lines of the product at random places, one at a time, and counts how many the tests find.

    python -m tests.broken_lines --seed 7 --count 60 --list                     the lines, and how each would be broken
    python -m tests.broken_lines --seed 7 --count 60 --contexts .coverage       break each, run the tests that touch it
    python -m tests.broken_lines ... --only 12 --first tests/state/test_purse.py    one of them again, with a new test

The tests that touch a line are read from a coverage database, which is recorded once, in half an hour:

    pip install coverage pytest-cov
    python -m pytest --cov --cov-context=test --junitxml=var/tests.xml -m "not (slow or cluster)"

A line is a statement in a function; each is as likely as any other. Constants and fields of modules and classes, log
calls, assertions, texts and `__repr__` are left alone, and so are numbers that only tune (pauses, digits, sizes of
reads) and comparisons with a clock, where `<` does what `<=` does. The source is broken in a copy of the tree. A line
is found if a test fails, or hangs, that passes on the unbroken copy. Files that import its module are run, too, or name
its package if few touched it: coverage records no forks. What no test touched, which is what children and actors run,
is tried on the smoke tests of the cluster last. The exit status is 0 if eleven of twelve are found.

cosmic-ray and mutmut would need most of this: the one breaks the working tree, the other removes no statement or lock.
"""

import argparse
import ast
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

from tests.tiers import FIRST

ROOT = Path(__file__).parents[1]
ROOMS = (
    *("contract", "audio", "configs", "text", "state"),
    *("models", "autoscaling", "deployments", "concurrency", "launch"),
)
SCHEMA = "state/database/migrations/"  # tables of the database, as they once were
LINKED = (".venv", "var/weights", "tests/console/node_modules")
CHOSEN = "BROKEN_LINES_CHOSEN"
"""Environment variable: a JSON file with the tests or files of tests that pytest runs, in this order."""
FIRST_TESTS = 12
"""These run before the others are even imported: most lines are found by one of them."""
TEST_S = 90
"""A test that takes this long hangs: those that are chosen take some seconds."""
CLUSTER, CLUSTER_S = "tests/cluster/", 600
"""Folder of the tests that run a graph, and the longest time for its smoke tests."""

COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
NEIGHBOURS = (ast.LtE, ast.Lt, ast.GtE, ast.Gt, ast.NotEq, ast.Eq, ast.IsNot, ast.Is, ast.NotIn, ast.In)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
TEXTS = {"__repr__", "__str__"}
NOT_BROKEN = (ast.stmt, ast.excepthandler, ast.match_case, ast.arguments, ast.JoinedStr)
LOG = re.compile(r"(await )?_?(log|logger|logging|warnings)\.\w+\(")
LOCK = re.compile(r"(?<!b)lock(?!s)|slots|_turns|semaphore", re.IGNORECASE)
CLOCK = re.compile(r"\b(monotonic|perf_counter|time|clock)\(\)")
TUNING = re.compile(r"sleep|timeout(_s)?|wait(_for)?|join|round|read|recv|maxsize|max_workers|stacklevel|indent")


class Break(NamedTuple):
    """One way to break a line: the bytes of the file from `start` to `end` become `after`."""

    file: str
    line: int
    last_line: int
    kind: str
    start: int
    end: int
    before: str
    after: str

    def of(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]

    def __str__(self) -> str:
        before, after = (re.sub(r"\s+", " ", text)[:60] for text in (self.before, self.after))
        return f"{self.file}:{self.line}  {self.kind}: {before} -> {after}"


def picked(root: Path, seed: int, count: int) -> list[Break]:
    """`count` statements of the product below `root`, each with one way to break it: first its kind, then its place."""
    files = (file.relative_to(root).as_posix() for room in ROOMS for file in sorted((root / room).rglob("*.py")))
    ways_of = [ways for name in files if SCHEMA not in name for ways in breaks(name, (root / name).read_bytes())]
    chance, chosen = random.Random(seed), []
    for ways in chance.sample(ways_of, min(count, len(ways_of))):
        kind = chance.choice(sorted({way.kind for way in ways}))
        chosen.append(chance.choice([way for way in ways if way.kind == kind]))
    return chosen


def breaks(name: str, source: bytes) -> Iterator[list[Break]]:
    """The ways to break each statement in the functions of a file, for those that have one."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def way(statement: ast.stmt, kind: str, first: Any, last: Any, after: str) -> Break:
        start, end = starts[first.lineno - 1] + first.col_offset, starts[last.end_lineno - 1] + last.end_col_offset
        line = (first if isinstance(first, ast.stmt) else statement).lineno
        return Break(name, line, last.end_lineno, kind, start, end, source[start:end].decode(), after)

    for statement in _statements(ast.parse(source)):
        ways = [way(statement, *edit) for edit in _edits(statement)]
        if ways := [way for way in ways if way.after != "pass" or not way.before.startswith("elif ")]:
            yield ways


def _statements(tree: ast.Module) -> dict[ast.stmt, None]:
    """The statements of functions, other than definitions, once each."""
    functions = (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and node.name not in TEXTS)
    inside = (node for function in functions for node in ast.walk(function) if isinstance(node, ast.stmt))
    return dict.fromkeys(node for node in inside if not isinstance(node, (*FUNCTIONS, ast.ClassDef)))


def _edits(statement: ast.stmt) -> Iterator[tuple[str, ast.AST, ast.AST, str]]:
    """Kind, first node, last node and new text of each way to break a statement, without the statements in it."""
    if isinstance(statement, ast.Assert) or LOG.match(ast.unparse(statement)):
        return
    match statement:
        case ast.Raise(exc=ast.Name(id="NotImplementedError")):
            return
        case ast.Raise():
            yield "raise removed", statement, statement, "pass"
            return  # its numbers and conditions are those of an error's text
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "call removed", statement, statement, "pass"
        case ast.Assign(targets=[ast.Attribute()]) | ast.AugAssign(target=ast.Attribute()):
            yield "assignment removed", statement, statement, "pass"
        case ast.AnnAssign(target=ast.Attribute(), value=ast.expr()):
            yield "assignment removed", statement, statement, "pass"
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) not in {"None", "False"}:
            yield "nothing returned", statement, statement, "return None"
        case ast.With(items=[ast.withitem(lock, None)]) | ast.AsyncWith(items=[ast.withitem(lock, None)]):
            if LOCK.search(ast.unparse(lock)):
                yield "lock taken away", statement, lock, "if True"
    for name, body in (("else", getattr(statement, "orelse", [])), ("finally", getattr(statement, "finalbody", []))):
        if body:
            yield f"{name} removed", body[0], body[-1], "pass"
    for node in (statement, *_expressions(statement)):
        match node:
            case ast.Compare(left, [operator], right) if not CLOCK.search(ast.unparse(node)):
                turned = ast.Compare(left, [NEIGHBOURS[COMPARISONS.index(type(operator))]()], right)
                yield "comparison turned", node, node, ast.unparse(turned)
            case ast.BoolOp(operator, values):
                other = ast.Or() if isinstance(operator, ast.And) else ast.And()
                yield "and/or exchanged", node, node, f"({ast.unparse(ast.BoolOp(other, values))})"
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                yield "number plus one", node, node, str(number + 1)
            case ast.If(test) | ast.While(test) | ast.IfExp(test) | ast.comprehension(ifs=[test]):
                if not isinstance(test, ast.Constant | ast.Compare):
                    yield "condition negated", test, test, f"(not ({ast.unparse(test)}))"


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions below a node, without those of statements, texts, and numbers that only tune."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) | ast.keyword(arg=str() as name):
            only_tunes = bool(TUNING.fullmatch(name))
        case _:
            only_tunes = isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift)
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, NOT_BROKEN) and not (only_tunes and isinstance(child, ast.Constant)):
            yield child
            yield from _expressions(child)


class Recorded:
    """The tests that touched each line when coverage was recorded, and how long each took."""

    def __init__(self, contexts: Path, durations: Path) -> None:
        try:
            from coverage import CoverageData  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            sys.exit("Reading contexts needs coverage, which is in no lock: `pip install coverage pytest-cov`.")
        if not contexts.exists():
            sys.exit(f"{contexts} is missing. It is recorded with coverage (`pip install coverage pytest-cov`): --help")
        self._data = CoverageData(basename=str(contexts))
        self._data.read()
        cases = ElementTree.parse(durations).iter("testcase") if durations.exists() else ()
        self._seconds = {(case.get("classname"), case.get("name")): float(case.get("time", 1)) for case in cases}
        self._of_file = defaultdict[str | None, float](float)
        for (file, _), takes_s in self._seconds.items():
            self._of_file[file] += takes_s

    def touches(self, way: Break) -> bool:
        """Says if any test touched the line."""
        return bool(self._contexts(way)[0])

    def _contexts(self, way: Break) -> tuple[list[str], list[str]]:
        """Of the line, and of all lines of its file."""
        measured = (file for file in self._data.measured_files() if file.endswith(f"/{way.file}"))
        contexts = self._data.contexts_by_lineno(min(measured, key=len, default=""))  # tests have folders of such names
        touched = [context for line in range(way.line, way.last_line + 1) for context in contexts.get(line, [])]
        return touched, [context for of_line in contexts.values() for context in of_line]

    def tests_of(self, way: Break, most: int, seconds: float) -> list[str]:
        """Tests that touched the line, the cheapest first: one of each file before the second of any.

        Files that import the line's module, which test it directly, may have ten before the second of another. Tests
        that alone take a tenth of the time come last.
        """
        touched, of_file = self._contexts(way)
        shared = {context.split("::")[0] for context in touched if context.endswith("|setup")}
        if touched and not any(touched):  # while modules were imported, which every test needs
            touched = of_file
        # A fixture that several tests share ran for the first of them only.
        touched += [context for context in of_file if context.split("::")[0] in shared]
        by_file: dict[str, list[str]] = defaultdict(list)
        names = {context.split("|")[0] for context in touched if context}
        for test in sorted(names, key=lambda test: (self._seconds_of(test), test)):
            by_file[test.split("::")[0]].append(test)
        module = way.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        by_file = {name: tests for name, tests in by_file.items() if (ROOT / name).exists()}  # some have moved
        package, _, leaf = module.rpartition(".")
        imports = re.compile(rf"{module}\b|from {package} import [\w\s,()]*\b{leaf}\b")
        near = {name for name in by_file if imports.search((ROOT / name).read_text())}
        ranks = {
            test: rank // 10 if name in near else rank
            for name, tests in by_file.items()
            for rank, test in enumerate(tests)
        }

        def turn(test: str) -> tuple[bool, int, bool, float]:
            takes_s = self._seconds_of(test)
            return takes_s > seconds / 10, ranks[test], test.split("::")[0] not in near, takes_s

        ordered = sorted(ranks, key=turn)
        ends = accumulate(map(self._seconds_of, ordered))
        chosen = [test for test, end in zip(ordered[:most], ends, strict=False) if end <= seconds]
        # Forks, children and tests that are newer than the recording are not in it.
        named = re.compile(package) if len(chosen) < FIRST_TESTS and module.count(".") > 1 else imports
        files = (file for file in ROOT.glob("tests/**/test_*.py") if named.search(file.read_text()))
        whole = sorted(str(file.relative_to(ROOT)) for file in files if "cluster" not in file.parts)  # graphs live on
        whole.sort(key=lambda name: f"/{Path(way.file).parent.name}/" not in name)
        left_s = seconds - sum(map(self._seconds_of, chosen))
        for name in whole:
            if (takes_s := self._of_file[key_of(f"{name}::")[0]]) <= left_s:
                chosen.append(name)
                left_s -= takes_s
        return chosen

    def _seconds_of(self, test: str) -> float:
        return self._seconds.get(key_of(test), 1)


def key_of(test: str) -> tuple[str, str]:
    """The names that JUnit's XML has for the id of a test: of its file or class, and its own."""
    path, _, name = test.partition(".py::")
    head, bracket, parameters = name.partition("[")
    *classes, function = head.split("::")
    return ".".join([path.replace("/", "."), *classes]), function + bracket + parameters


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the chosen tests, where pytest has this module as a plugin."""
    turn = {name: n for n, name in enumerate(json.loads(Path(os.environ[CHOSEN]).read_text()))}
    turns = {item: turn.get(item.nodeid, turn.get(item.nodeid.split("::")[0])) for item in items}
    items[:] = sorted((item for item in items if turns[item] is not None), key=lambda item: turns[item] or 0)


def pytest_runtest_logreport(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Writes the name of the first test that fails, or of a file that cannot be imported, and why."""
    failed = Path(os.environ[CHOSEN]).with_suffix(".failed")
    if report.failed and not failed.exists():
        crash = getattr(report.longrepr, "reprcrash", None)
        failed.write_text(json.dumps([report.nodeid, crash.message if crash else report.longreprtext]))


pytest_collectreport = pytest_runtest_logreport


def smoke_files() -> list[str]:
    """Files with smoke tests of the cluster, in their order."""
    marked = (path for path in ROOT.glob(f"{CLUSTER}test_*.py") if "mark.smoke" in path.read_text())
    return sorted((path.relative_to(ROOT).as_posix() for path in marked), key=lambda file: (file not in FIRST, file))


class Copy:
    """A copy of a tree, in which one line at a time is broken."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = folder / "tree"
        left_out = (".git", ".venv", ".*cache", ".hypothesis", "__pycache__", "var", "node_modules")
        shutil.copytree(root, self.root, symlinks=True, ignore=shutil.ignore_patterns(*left_out))
        for name in LINKED:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).symlink_to((root / name).resolve())

    def judged(self, way: Break, tests: Sequence[str], seconds: float) -> str:
        """The test that finds a broken line and its reason; empty if none does in the time."""
        end_s = time.monotonic() + seconds
        intact = (self.root / way.file).read_bytes()
        waiting = [list(tests[:FIRST_TESTS]), list(tests[FIRST_TESTS:])]
        while waiting and time.monotonic() < end_s:
            if not (batch := waiting.pop(0)):
                continue
            self._write(way.file, way.of(intact))
            left_s = end_s - time.monotonic()  # the same for both, so that a slow batch is no hanging one
            suspects, why = self._run(batch, left_s)
            self._write(way.file, intact)
            if suspects and not self._run(suspects, left_s)[0]:
                return f"{suspects[0] if len(suspects) == 1 else f'{len(suspects)} tests'}: {why}"
            if suspects:
                red = (*suspects, suspects[0].split("::")[0])
                waiting.insert(0, [test for test in batch if test not in red])
        return ""

    def _write(self, name: str, source: bytes) -> None:
        (self.root / name).write_bytes(source)
        # Python compares seconds and sizes, which may be the same.
        Path(importlib.util.cache_from_source(str(self.root / name))).unlink(missing_ok=True)

    def _run(self, tests: Sequence[str], seconds: float) -> tuple[Sequence[str], str]:
        """The tests that did not pass, and why: one that failed, or all where the run hung or died."""
        chosen = self.root / "var/chosen.json"
        failed = chosen.with_suffix(".failed")
        failed.unlink(missing_ok=True)
        chosen.write_text(json.dumps(tests))
        files = dict.fromkeys(test.split("::")[0] for test in tests)
        tier = ("-m", "smoke", f"--timeout={CLUSTER_S}") if tests[0].startswith(CLUSTER) else (f"--timeout={TEST_S}",)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.broken_lines", *tier, *files]
        os.environ[CHOSEN] = str(chosen)
        process = subprocess.Popen(command, cwd=self.root, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return tests, f"hangs: no end after {seconds:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what the tests have left
            process.wait()
        if failed.exists():
            name, why = json.loads(failed.read_text())
            return [test for test in tests if test.startswith(name)] or [name], why.strip().split("\n")[0][:120]
        passed = process.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        return [] if passed else tests, f"pytest ended with {process.returncode}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exits with 1 if fewer than eleven of twelve lines are found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=7, help="the same seed breaks the same lines of the same tree")
    parser.add_argument("--count", type=int, default=60, help="number of lines (60)")
    parser.add_argument("--list", action="store_true", help="print the lines and break none")
    parser.add_argument("--contexts", type=Path, default=ROOT / ".coverage", help="coverage database with contexts")
    parser.add_argument("--durations", type=Path, default=ROOT / "var/tests.xml", help="JUnit's XML of the same run")
    parser.add_argument("--tests", type=int, default=400, help="most tests that are tried for a line (400)")
    parser.add_argument("--seconds", type=float, default=240, help="longest time for a line (240)")
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER", help="break these of the list")
    parser.add_argument("--first", nargs="+", default=[], metavar="TEST", help="tests or files to run first")
    parser.add_argument("--record", type=Path, default=ROOT / "var/broken-lines.json", help="where the JSON goes")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # as Ctrl-C does: with the tests that run
    lines = dict(enumerate(picked(ROOT, options.seed, options.count), 1))
    if options.list:
        print("\n".join(f"{number:>3}  {way}" for number, way in lines.items()))
        return
    recorded = Recorded(options.contexts, options.durations)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="broken-lines-") as folder:
        copy = Copy(ROOT, Path(folder))
        for number in options.only or lines:
            way, begin_s = lines[number], time.monotonic()
            tests = [*options.first, *recorded.tests_of(way, options.tests, options.seconds / 2)]
            found = copy.judged(way, tests, options.seconds)
            if not (found or recorded.touches(way)):
                found = copy.judged(way, smoke_files(), CLUSTER_S)
            seconds = round(time.monotonic() - begin_s)
            rows.append({"number": number, **way._asdict(), "tests": len(tests), "found": found, "seconds": seconds})
            missed = f"NOT FOUND by {len(tests)} tests" if tests else "NOT FOUND: no test touches it"
            print(f"{number:>3}/{options.count}  {seconds:>4} s  {way}\n              {found or missed}", flush=True)
            options.record.write_text(json.dumps({"seed": options.seed, "lines": rows}, indent=1) + "\n")
    print("\n| line | broken | found by | s |\n|---|---|---|---|")
    for row in rows:
        finder = row["found"].split(": ")[0] or "**none**"
        print(f"| {row['file']}:{row['line']} | {row['kind']} | {finder} | {row['seconds']} |")
    count = sum(bool(row["found"]) for row in rows)
    print(f"\n{count} of {len(rows)} lines were found (seed {options.seed}); record: {options.record}")
    sys.exit(count * 12 < len(rows) * 11)


if __name__ == "__main__":
    main()
