"""The record of a campaign is read as it was written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.campaign.record import Outcome, Record


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    outcomes = [Outcome("deaths", "engine: killed", "It is 502.", 2, 1, 0.5, Counter({"call: 200": 3}), "test_it")]
    record = Record(7, is_short=True, day="2026-11-28", machine="2 cores", outcomes=outcomes)
    record.write(tmp_path / "record.json")
    assert Record.read(tmp_path / "record.json") == record
