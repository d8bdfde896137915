"""The collector that takes spans while a traced graph is measured."""

from __future__ import annotations

from pathlib import Path

import httpx

from benchmarks.speed import processor_time


def test_a_collector_says_how_many_calls_have_brought_spans(tmp_path: Path) -> None:
    with processor_time.collecting(tmp_path) as address:
        assert httpx.get(address).text == "0"
        assert httpx.post(f"{address}/v1/traces", content=b"x" * 200_000).status_code == 200
        assert httpx.get(address).text == "1"
