"""The tiers of tests: what is left out before a push is named, and runs on a merge."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tiers import FIRST, MARKERS, ON_VLLM, marker_of

ROOT = Path(__file__).parents[1]
FILES = [file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("test_*.py")]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


@pytest.mark.parametrize("place", sorted({*MARKERS, *FIRST, *ON_VLLM}))
def test_a_place_of_the_table_has_tests(place: str) -> None:
    assert any(file.startswith(place) for file in FILES)


def test_a_push_leaves_out_what_the_table_marks_and_a_merge_leaves_out_nothing_of_it() -> None:
    (left_out,) = re.findall(r"^LONG := (.*)$", MAKEFILE, re.MULTILINE)
    assert {*left_out.split(" or ")} == {*MARKERS.values(), "crashes", "slow"} - {"cluster"}
    assert '$(TOGETHER) -m "not (slow or cluster)"' in MAKEFILE
    assert '$(ALONE) -m "$(or $(TIER),not slow)"' in MAKEFILE
    assert "test-all: test-units test-cluster " in MAKEFILE
    merge = (ROOT / ".ci/run").read_text("utf-8")
    assert "\nmake test-units\n" in merge
    assert re.search(r"^if \[ \$SECONDS -lt \d+ \]; then make test-cluster; else$", merge, re.MULTILINE)


def test_the_smoke_tests_are_of_the_cluster() -> None:
    smoke = {file for file in FILES if "pytest.mark.smoke" in (ROOT / file).read_text("utf-8")} - {
        "tests/test_tiers.py"
    }
    assert smoke
    assert {marker_of(file) for file in smoke} == {"cluster"}
