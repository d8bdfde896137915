"""The short comparison with committed ratios: what it calls slid, and what it writes."""

from __future__ import annotations

import tomllib
from importlib import import_module

import pytest

from benchmarks.speed.quick import BENCHMARKS, COMMITTED, KINDS, kind_of, rows, text_of, verdict


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
    kinds = tomllib.loads(COMMITTED.read_text("utf-8"))
    assert {"AMX"} <= kinds.keys() <= KINDS.keys()
    assert all(list(committed) == list(BENCHMARKS) for committed in kinds.values())
    assert all(value > 0 for kind in kinds.values() for ratios in kind.values() for value in ratios.values())
    assert all(callable(import_module(f"benchmarks.speed.{name}").ratios) for name in BENCHMARKS)


def test_what_is_written_is_read_again() -> None:
    ratios = {"gateway": {"16 clients, rate": 0.85}, "chat": {"time to first token": 0.5}}
    kinds = {"AMX": ratios, "AVX-512": ratios}
    assert tomllib.loads(text_of(kinds)) == kinds


@pytest.mark.parametrize(
    ("features", "kind"),
    [
        ({"avx2": True, "avx512_bf16": True, "amx_bf16": True}, "AMX"),
        ({"avx2": True, "avx512_bf16": True, "amx_bf16": False}, "AVX-512"),
        ({"avx2": True, "avx512_f": True}, "AVX2"),
        ({"avx": True}, "other"),
    ],
)
def test_a_processor_is_of_the_newest_kind_that_it_has(features: dict[str, bool], kind: str) -> None:
    assert kind_of(features) == kind


def test_a_table_names_what_slid() -> None:
    now = {"16 clients, rate": 0.5, "64 clients, rate": 0.9}
    assert rows("gateway", now, {"16 clients, rate": 1.0}) == (
        "| gateway | 16 clients, rate | 1.00 | 0.50 | **slid** by 50% |\n| gateway | 64 clients, rate |  | 0.90 | new |"
    )
