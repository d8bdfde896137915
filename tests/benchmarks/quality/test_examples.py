"""The labelled set: every line is a request that the server would take, with an answer that it could give."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import configs
from benchmarks.quality.examples import FILE, OWN, VALUES, ExampleError, load
from benchmarks.quality.similarity import FILE as DEVELOPMENT
from contract.body import parse
from contract.decisions.native import DecisionRequest
from contract.decisions.questions import state_text

PRESETS = configs.load_presets()
CASES = load(PRESETS)
GOOD = {"language": "en", "preset": "sentiment-v1", "state": "x"}
OWN_ONE = {"type": "score", "instructions": "How red?", "levels": ["not", "a little", "very"]}


def test_there_are_enough_of_each_kind() -> None:
    assert len(CASES) >= 200
    packs = Counter(case.pack for case in CASES)
    assert set(packs) == {*PRESETS, OWN}
    assert packs[OWN] >= 40
    assert min(packs[name] for name in PRESETS) >= 25
    own = Counter(question.type for case in CASES if case.pack == OWN for question in case.questions.values())
    assert set(own) == set(VALUES)
    assert min(own.values()) >= 10
    assert min(Counter(case.language for case in CASES).values()) >= 80


def test_every_line_is_a_request() -> None:
    for text in FILE.read_text("utf-8").splitlines():
        line = json.loads(text)
        body = {name: line[name] for name in ("state", "preset", "questions") if name in line}
        assert parse(DecisionRequest, json.dumps(body).encode()).text == state_text(line["state"])


def test_every_answer_of_a_preset_is_expected_somewhere() -> None:
    for preset in PRESETS.values():
        for name, question in preset.questions.items():
            found = {case.expected[name] for case in CASES if case.pack == preset.id}
            rare = {"unclear", "other", "unknown"}
            wanted = {index for index, label in enumerate(question.labels) if label not in rare}
            assert found >= wanted, f"{preset.id}: {name}"


def _words(text: str) -> set[str]:
    return set(text.lower().split())


def test_the_fitting_sets_are_others() -> None:
    """What fits must not judge: no state of a preset or of the development set is here, nor one nearly the same."""
    fitting = [state_text(example.state) for preset in PRESETS.values() for example in preset.examples]
    fitting += [case.state for case in load(PRESETS, DEVELOPMENT)]
    for case in CASES:
        for text in fitting:
            both = _words(case.state) & _words(text)
            assert len(both) < 0.6 * len(_words(case.state) | _words(text)), case.state


def test_no_state_comes_twice() -> None:
    assert len({case.state for case in CASES}) == len(CASES)


@pytest.mark.parametrize(
    "line",
    [
        GOOD | {"expected": {"sentiment": "positive"}},
        GOOD | {"expected": {"sentiment": "glad", "would_return": True}},
        GOOD | {"expected": {"sentiment": "positive", "would_return": "true"}},
        GOOD | {"expected": {"sentiment": "positive", "would_return": 1}},
        GOOD | {"expected": {"sentiment": "positive", "would_return": True, "more": 1}},
        GOOD | {"preset": "none-v1", "expected": {"sentiment": "positive"}},
        GOOD | {"questions": {"q": OWN_ONE}, "expected": {"q": 1}},
        GOOD | {"extra": 1, "expected": {"sentiment": "positive", "would_return": True}},
        {"language": "fr", "questions": {"q": OWN_ONE}, "state": "x", "expected": {"q": 1}},
        {"language": "en", "questions": {"q": OWN_ONE}, "state": "x", "expected": {"q": 3}},
        {"language": "en", "questions": {"q": OWN_ONE}, "state": "x", "expected": {"q": "1"}},
        {"language": "en", "questions": {"q": OWN_ONE}, "state": "x", "expected": {"q": True}},
        {"language": "en", "state": "x", "expected": {"q": 1}},
    ],
)
def test_an_odd_line_is_refused_by_its_number(line: dict[str, object], tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    good = GOOD | {"expected": {"sentiment": "positive", "would_return": True}}
    file.write_text(f"{json.dumps(good)}\n{json.dumps(line)}\n")
    with pytest.raises(ExampleError, match=r"lines\.jsonl, line 2"):
        load(PRESETS, file)


def test_a_level_of_a_score_may_be_expected(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    line = {"language": "en", "questions": {"q": OWN_ONE}, "state": {"a": "ä"}, "expected": {"q": 2}}
    file.write_text(json.dumps(line))
    (case,) = load(PRESETS, file)
    assert (case.pack, case.state, case.expected) == (OWN, '{"a": "ä"}', {"q": 2})
