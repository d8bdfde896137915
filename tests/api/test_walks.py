"""How many files a request opens."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.api.walks import walks

MOST = {"chat stream": 30, "speech": 31, "transcription": 52, "voice design": 47, "decision": 32, "MCP chat": 33}
"""Files of each walk, the writing of the bill in the database's thread included."""


async def test_each_walk_is_as_short_as_it_was(tmp_path: Path, migrated: Path) -> None:
    shutil.copy(migrated, tmp_path)
    taken = {name: len(files) for name, files in (await walks(tmp_path)).items()}
    long = {name: files for name, files in taken.items() if files > MOST[name]}
    assert (set(taken), long) == (set(MOST), {}), f"more than {MOST}; `python -m tests.api.walks` prints them"
