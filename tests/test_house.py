"""How large the house may be, and how it names things: what a reader pays for before the first line of logic.

A bar is moved only together with the reason for it, in the same commit. The walks of requests have bars of their own
(tests/api/test_walks.py).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.pages import ROOT

ROOMS = (
    "audio",
    "autoscaling",
    "concurrency",
    "configs",
    "contract",
    "deployments",
    "launch",
    "models",
    "state",
    "text",
)
FILES = 427
"""What came last: metrics six (table, counters, way to Ray, agent of a node, report of an ingress, fork servers' size),
health one, usage of clients two, months of budgets one, acts and the programs that write them four with their step,
traces and logs five (table, way to a collector, settings, lines, end of a request), waits six (quantiles, order,
forecast, events apart from other replies, facts of the database, failures apart from the gate), ids from a
stock one, the console nine (types, route, map, files, records, picture, feed, what binds them, what replicas share),
speech that is heard back five (verdict, comparison, ears, flow, store), the policy of scaling twelve,
the simulator fourteen (turns apart from whoever awaits them, its command, eleven of a day in virtual time,
Serve's default at any time), live sessions twenty (contract six, what finds speech two,
the session eight, sockets two, route, client secrets).
"""
LONGEST_FILE = 250
LONGEST_FUNCTION = 43
LONGEST_TEST_FILE = 425

FILLERS = {"asked", "found", "given", "heard", "held", "kept", "made", "one", "said", "told"}
"""Words that stand where a noun would say what a variable, an argument or a function holds."""

FRAGMENTS = ("Of ", "Ours", "As ")
"""How docstrings without a subject and a verb begin."""


@cache
def product() -> dict[Path, ast.Module]:
    """Each file of the product, by its path from the root."""
    files = [ROOT / "graph.py", *(file for room in ROOMS for file in (ROOT / room).rglob("*.py"))]
    return {file.relative_to(ROOT): ast.parse(file.read_text("utf-8")) for file in sorted(files)}


def lines_of(file: Path) -> int:
    return len((ROOT / file).read_text("utf-8").splitlines())


def identifiers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The names that a file gives, and where."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name, node.lineno
            case (
                ast.arg(arg=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name, node.lineno


def test_the_product_has_few_files() -> None:
    assert len(product()) <= FILES


def test_no_file_is_long() -> None:
    assert {str(file): lines for file in product() if (lines := lines_of(file)) > LONGEST_FILE} == {}


def test_no_test_file_is_long() -> None:
    files = (file.relative_to(ROOT) for file in (ROOT / "tests").rglob("*.py"))
    assert {str(file): lines for file in files if (lines := lines_of(file)) > LONGEST_TEST_FILE} == {}


def test_no_function_is_long() -> None:
    assert {
        f"{file}:{node.lineno} {node.name}": lines
        for file, tree in product().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > LONGEST_FUNCTION
    } == {}


def test_a_class_name_means_one_thing() -> None:
    names = Counter(
        node.name for tree in product().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in names.items() if times > 1] == []


def test_identifiers_are_nouns_that_say_what_they_hold() -> None:
    assert [
        f"{file}:{line} {name}"
        for file, tree in product().items()
        for name, line in identifiers(tree)
        if name.strip("_").lower() in FILLERS
    ] == []


def test_docstrings_are_sentences() -> None:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    assert [
        f"{file} {getattr(node, 'name', '')}"
        for file, tree in product().items()
        for node in ast.walk(tree)
        if isinstance(node, documented) and (ast.get_docstring(node) or "").startswith(FRAGMENTS)
    ] == []
