"""The short comparison with committed ratios: what it calls slid, and what is committed."""

from __future__ import annotations

import tomllib

from benchmarks.speed.quick import BENCHMARKS, COMMITTED, KINDS, kind_of, text_of, verdict

RATE, FIRST = "16 clients, rate", "time to first token"
VERDICTS: dict[tuple[str, float, float | None], str] = {
    (RATE, 0.86, 1.0): "as before",
    (RATE, 0.84, 1.0): "**slid** by 16%",
    (RATE, 1.14, 1.0): "as before",
    (RATE, 1.16, 1.0): "better by 16%",
    (FIRST, 1.16, 1.0): "as before",
    (FIRST, 1.2, 1.0): "**slid** by 17%",
    (FIRST, 0.8, 1.0): "better by 25%",
    (FIRST, 0.8, None): "new",
}


def test_a_ratio_slides_in_the_direction_that_is_worse() -> None:
    assert {ratio: verdict(*ratio) for ratio in VERDICTS} == VERDICTS


def test_each_benchmark_has_committed_ratios_by_kind_of_processor() -> None:
    kinds = tomllib.loads(COMMITTED.read_text("utf-8"))
    assert {"AMX"} <= kinds.keys() <= KINDS.keys()
    assert all(list(committed) == list(BENCHMARKS) for committed in kinds.values())
    assert tomllib.loads(text_of(kinds)) == kinds
    features: list[tuple[str, dict[str, bool]]] = [
        ("AMX", {"avx2": True, "avx512_bf16": True, "amx_bf16": True}),
        ("AVX-512", {"avx2": True, "avx512_bf16": True, "amx_bf16": False}),
        ("AVX2", {"avx2": True, "avx512_f": True}),
        ("other", {"avx": True}),
    ]
    assert [kind_of(has) for _, has in features] == [kind for kind, _ in features]
