"""Easy texts in the shapes of other APIs: what is asked, and how replies are counted."""

from __future__ import annotations

import tomllib
from typing import Any

from benchmarks.quality.wires import FILE, FORMS, Tally, openai, system_one, table

GROUPS: dict[str, Any] = tomllib.loads(FILE.read_text("utf-8"))


def test_the_file_has_34_texts_of_which_each_has_one_true_option() -> None:
    expected = [(group, name) for group in GROUPS.values() for name in group["texts"].values()]
    assert len(expected) == 34
    assert all(name in group["options"] for group, name in expected)
    assert all(
        set(option) == {"description", *FORMS} for group in GROUPS.values() for option in group["options"].values()
    )


def test_both_wires_ask_the_same() -> None:
    group = GROUPS["mood"]
    asked = [wire.native() for wire in (openai("Oh!", group), system_one("Oh!", group))]
    one, other = ([question.model_dump() for question in decision.questions.values()] for decision in asked)
    assert one == other
    assert [question["type"] for question in one] == ["choice", *["binary"] * 6]
    assert [question["instructions"] for question in one[1:3]] == ["The writer is happy.", "The writer is angry."]


def test_equal_numbers_are_not_counted_as_told_apart() -> None:
    tally = Tally([True, False])
    tally.pairs["statement"] = [(0.9, 0.1), (0.6, 0.4), (0.5, 0.5), (0.3, 0.7)]
    assert table({"X": tally}).splitlines()[2:] == [
        "| X | choice | 1 of 2 | - | - | - |",
        "| X | statement | 4 of 8 | 1 of 4 | 1 | 1 |",
    ]
