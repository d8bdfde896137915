"""The docstring of each package is its map: it names every module that is there, and none that is not.

`<noun>.py` stands for one module per capability, so that a new capability redraws no map.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from contract.catalog import CATALOG_TYPES
from tests.docs.pages import ROOMS, ROOT

PACKAGES = sorted(
    file.parent.relative_to(ROOT)
    for room in ROOMS
    for file in (ROOT / room).rglob("__init__.py")
    if "versions" not in file.parts  # steps of the schema are a history, not rooms
)

NAMED = re.compile(r"(?<![\w/.])((?:\w+|<noun>)(?:\.py|/))(?!\w)")


def map_of(package: Path) -> set[str]:
    """What the docstring names: `module.py` and `package/`."""
    tree = ast.parse((ROOT / package / "__init__.py").read_text("utf-8"))
    named = set(NAMED.findall(ast.get_docstring(tree) or ""))
    capabilities = {name.replace("<noun>", noun) for name in named for noun in CATALOG_TYPES if "<noun>" in name}
    return {name for name in named if "<noun>" not in name} | (capabilities & rooms_of(package))


def rooms_of(package: Path) -> set[str]:
    """What is there, spelled as a map does. What runs a package as a program need not be named."""
    folder = ROOT / package
    modules = {file.name for file in folder.glob("*.py")} - {"__init__.py", "__main__.py"}
    return modules | {f"{file.parent.name}/" for file in folder.glob("*/__init__.py")}


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_the_map_is_true(package: Path) -> None:
    named = map_of(package)
    assert rooms_of(package) - named == set(), "is there, but not on the map"
    missing = {name for name in named if not (ROOT / package / name).exists()}
    assert missing == set(), "is on the map, but not there"
