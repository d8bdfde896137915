"""`make bench` calls each benchmark with arguments that it has. Only a run of forty minutes would say so otherwise."""

from __future__ import annotations

import ast

import pytest

from benchmarks.speed.__main__ import SHORT
from tests.docs.pages import ROOT


def options_of(name: str) -> set[str]:
    """First argument of each call of `add_argument` in a benchmark."""
    tree = ast.parse((ROOT / f"benchmarks/speed/{name}.py").read_text("utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return {ast.literal_eval(call.args[0]) for call in calls if call.func.attr == "add_argument"}


@pytest.mark.parametrize("name", SHORT)
def test_a_benchmark_has_the_options_that_it_is_called_with(name: str) -> None:
    called_with = {argument for argument in SHORT[name].arguments if argument.startswith("-")}
    assert called_with <= options_of(name)
