"""How many files a request opens, and how often control climbs back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.api.tracing import ROOT, Walk
from tests.api.walks import ENGINE_SIDE, WALKS, walks

MOST: dict[str, tuple[int, int]] = {
    "chat stream": (39, 3),  # events are apart from other replies
    "speech": (42, 3),  # what is for the eye is taken out of the text
    "transcription": (61, 7),  # its engine refuses first, with a forecast
    "voice design": (59, 2),  # verification, its table of languages, and the runner of background work
    "decision": (36, 3),
    "MCP chat": (42, 4),
}
"""Files and climbs, the writing of the bill in the database's thread included. Of each, one is what notices in a
replica that nothing goes on, one has a stock of ids, and one leaves what the console remembers of a request
(`traces.py`)."""


async def test_each_walk_is_as_short_as_it_was(tmp_path: Path, migrated: Path) -> None:
    shutil.copy(migrated, tmp_path)
    taken = await walks(tmp_path)
    assert set(taken) == set(MOST)
    long = {name: found for name, walk in taken.items() if not _is_within(found := _length(name, walk), MOST[name])}
    assert long == {}, f"more than {MOST}; `python -m tests.api.walks` prints them"


def _length(name: str, walk: Walk) -> tuple[int, int]:
    return len(walk.files_with(ENGINE_SIDE[name])), len(walk.climbs)


def _is_within(length: tuple[int, int], most: tuple[int, int]) -> bool:
    return length[0] <= most[0] and length[1] <= most[1]


@pytest.mark.parametrize("name", WALKS)
def test_the_files_of_its_engine_are_there(name: str) -> None:
    assert [file for file in ENGINE_SIDE[name] if not (ROOT / file).is_file()] == []
