"""What the threat model names as its proof is there: tests of this repository, and attacks of `make attack`."""

from __future__ import annotations

import re

import pytest

import benchmarks.attacks.__main__  # noqa: F401  # fills the list
from benchmarks.attacks.attack import ATTACKS
from tests.docs.pages import ROOT

MODEL = ROOT / "docs/threat-model.md"
ROW = re.compile(r"^\|.*\| (`.*`) \|$", re.MULTILINE)
NAME = re.compile(r"`([\w-]+)`")
DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)

SHOWN = sorted({name for cell in ROW.findall(MODEL.read_text("utf-8")) for name in NAME.findall(cell)})


def defined_tests() -> set[str]:
    return {name for file in (ROOT / "tests").rglob("test_*.py") for name in DEFINED.findall(file.read_text("utf-8"))}


@pytest.mark.parametrize("name", SHOWN)
def test_what_shows_it_is_there(name: str) -> None:
    assert name in (defined_tests() if name.startswith("test_") else ATTACKS), f"{MODEL.name} names `{name}`"


def test_every_attack_stands_in_the_model() -> None:
    assert set(ATTACKS) - set(SHOWN) == set()


def test_every_row_names_what_shows_it() -> None:
    tables = re.findall(r"\| tried \|.*\n\|[-|]+\n((?:\|.*\n)+)", MODEL.read_text("utf-8"))
    rows = [row for table in tables for row in table.splitlines()]
    assert len(tables) == 7
    assert [row for row in rows if not NAME.search(row.split("|")[-2])] == []
