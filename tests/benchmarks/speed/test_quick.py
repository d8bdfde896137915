"""The short comparison with committed ratios: what it calls slid, and what it writes."""

from __future__ import annotations

import tomllib
from importlib import import_module

import pytest

from benchmarks.speed.quick import BENCHMARKS, COMMITTED, rows, text_of, verdict


@pytest.mark.parametrize(
    ("ratio", "now", "committed", "words"),
    [
        ("16 clients, rate", 0.86, 1.0, "as before"),
        ("16 clients, rate", 0.84, 1.0, "**slid** by 16%"),
        ("16 clients, rate", 1.14, 1.0, "as before"),
        ("16 clients, rate", 1.16, 1.0, "better by 16%"),
        ("time to first token", 1.16, 1.0, "as before"),
        ("time to first token", 1.2, 1.0, "**slid** by 17%"),
        ("time to first token", 0.8, 1.0, "better by 25%"),
        ("time to first token", 0.8, None, "new"),
    ],
)
def test_a_ratio_slides_in_the_direction_that_is_worse(
    ratio: str, now: float, committed: float | None, words: str
) -> None:
    assert verdict(ratio, now, committed) == words


def test_each_benchmark_has_committed_ratios_and_a_short_run() -> None:
    committed = tomllib.loads(COMMITTED.read_text("utf-8"))
    assert list(committed) == list(BENCHMARKS)
    assert all(value > 0 for ratios in committed.values() for value in ratios.values())
    assert all(callable(import_module(f"benchmarks.speed.{name}").ratios) for name in BENCHMARKS)


def test_what_is_written_is_read_again() -> None:
    ratios = {"gateway": {"16 clients, rate": 0.85}, "chat": {"time to first token": 0.5}}
    assert tomllib.loads(text_of(ratios)) == ratios


def test_a_table_names_what_slid() -> None:
    now = {"16 clients, rate": 0.5, "64 clients, rate": 0.9}
    assert rows("gateway", now, {"16 clients, rate": 1.0}) == (
        "| gateway | 16 clients, rate | 1.00 | 0.50 | **slid** by 50% |\n| gateway | 64 clients, rate |  | 0.90 | new |"
    )
