"""The generator of injected states: seeded, varied, and always after a wrong answer."""

from __future__ import annotations

from collections import Counter

import configs
from benchmarks.quality.examples import load
from benchmarks.quality.injections import SEED, TEMPLATES, injections, spoken

CASES = load(configs.load_presets())
MADE = injections(CASES, 300)


def test_the_seed_makes_the_same_states() -> None:
    assert injections(CASES, 300, SEED) == MADE
    assert injections(CASES, 300, SEED + 1) != MADE
    assert injections(CASES, 20) == MADE[:20]


def test_every_kind_comes_equally_often_and_varies() -> None:
    counts = Counter(one.kind for one in MADE)
    assert set(counts) == set(TEMPLATES)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len({one.state for one in MADE}) > 290


def test_each_asks_for_a_wrong_answer_inside_its_state() -> None:
    for one in MADE:
        assert one.case.state in one.state
        assert len(one.state) > len(one.case.state)
        assert one.target != one.case.expected[one.name]
        label = spoken(one.question, one.target)
        assert one.kind == "harmless" or label in one.state or one.question.labels[one.target] in one.state
