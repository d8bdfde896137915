"""The labelled set of decisions, of which every line is a request, and tables of its evaluation from known verdicts."""

import json
from collections import Counter
from pathlib import Path

import pytest

import configs
from benchmarks.quality.decisions import MARKS, write
from benchmarks.quality.examples import FILE, OWN, VALUES, ExampleError, load
from benchmarks.quality.injections import injections, spoken
from benchmarks.quality.similarity import FILE as DEVELOPMENT
from benchmarks.quality.verdicts import Evaluated, Verdict, by_group, interval, overview, released, report
from contract.body import parse
from contract.decisions.answers import Distribution
from contract.decisions.engine import Measurement
from contract.decisions.native import DecisionRequest
from contract.decisions.questions import state_text

PRESETS = configs.load_presets()
CASES = load(PRESETS)
MEASURED = Measurement(
    measured_at=1, fingerprint="f", prompt_version="1", questions=1, accuracy=1, label_mass=1, calibration_error=0,
    temperature=2, latency_ms=1,
)  # fmt: skip
SCORE = {"type": "score", "instructions": "How red?", "levels": ["not", "a little", "very"]}
OWN_LINE = {"language": "en", "questions": {"q": SCORE}, "state": "x", "expected": {"q": 1}}
EXPECTED = {"sentiment": "positive", "would_return": True}
GOOD = {"language": "en", "preset": "sentiment-v1", "state": "x", "expected": EXPECTED}


def sure(places: int, best: int, confidence: float = 0.85, label_mass: float = 1.0) -> Distribution:
    rest = (1 - confidence) / (places - 1)
    return Distribution(tuple(confidence if i == best else rest for i in range(places)), label_mass, ())


def evaluated(confidence: float, *, right: bool, label_mass: float = 1.0) -> Evaluated:
    verdicts = []
    for case in CASES:
        for name, expected in case.expected.items():
            places = len(case.questions[name].labels)
            best = expected if right else (expected + 1) % places
            verdicts.append(Verdict(case, name, sure(places, best, confidence, label_mass)))
    return Evaluated("m", MEASURED, verdicts)


def cells(table: str, first: str) -> list[str]:
    (line,) = (line for line in table.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_a_model_that_is_always_right_or_always_wrong() -> None:
    found = [evaluated(0.85, right=True)]
    count = len(found[0].verdicts)
    assert cells(overview(found), "m") == [f"{count}", "100 %", "99 % to 100 %", "0.15", "1.00", "2.00"]
    table = by_group(found, "questions", lambda verdict: verdict.question.type)
    assert {cells(table, kind)[-1] for kind in ("choice", "score", "binary")} == {"100 %"}
    assert cells(table, "binary")[1] == "50 %"
    # Of its own questions most are asked once or twice: the most frequent answer would be the right one by looking.
    by_pack = by_group(found, "of", lambda verdict: verdict.case.pack)
    assert (cells(by_pack, OWN)[2], cells(by_pack, "sentiment-v1")[2][-2:]) == ("-", " %")
    assert cells(overview([evaluated(0.85, right=False)]), "m")[1:4] == ["0 %", "0 % to 1 %", "0.85"]


def test_what_a_threshold_withholds() -> None:
    table = released([evaluated(0.75, right=True)])
    undecided = cells(table, "0.7")[0]
    assert undecided != "0 %", "`other` and `unclear` are withheld whatever the threshold"
    assert cells(table, "0.4")[0] == undecided
    assert cells(table, "0.8") == ["100 %", "-"]
    assert cells(released([evaluated(0.95, right=True, label_mass=0.4)]), "0.4")[0] == "100 %"


def test_wilsons_interval() -> None:
    for right, low, high in ((0, 0, 0.2775), (5, 0.2366, 0.7634), (10, 0.7225, 1)):
        assert interval(right, 10) == pytest.approx((low, high), abs=1e-4)


def test_tables_replace_only_what_is_between_the_marks(tmp_path: Path) -> None:
    file = tmp_path / "evaluation.md"
    file.write_text(f"# Ours\n\n{MARKS[0]}\nstale\n{MARKS[1]}\n\nOur words.\n")
    write("new", file)
    write(report([evaluated(0.85, right=True)]), file)
    text = file.read_text()
    assert text.startswith("# Ours\n")
    assert text.endswith("Our words.\n")
    assert [text.count(word) for word in ("stale", "new", *MARKS)] == [0, 0, 1, 1]


def test_there_are_enough_of_each_kind_and_no_state_twice() -> None:
    packs = Counter(case.pack for case in CASES)
    assert (set(packs), packs[OWN] >= 40) == ({*PRESETS, OWN}, True)
    assert min(packs[name] for name in PRESETS) >= 25
    own = Counter(question.type for case in CASES if case.pack == OWN for question in case.questions.values())
    assert (set(own), min(own.values()) >= 10) == (set(VALUES), True)
    assert min(Counter(case.language for case in CASES).values()) >= 80
    assert len({case.state for case in CASES}) == len(CASES)


def test_every_line_is_a_request_and_every_answer_of_a_preset_is_expected_somewhere() -> None:
    for text in FILE.read_text("utf-8").splitlines():
        line = json.loads(text)
        body = {name: line[name] for name in ("state", "preset", "questions") if name in line}
        assert parse(DecisionRequest, json.dumps(body).encode()).text == state_text(line["state"])
    for preset in PRESETS.values():
        for name, question in preset.questions.items():
            found = {case.expected[name] for case in CASES if case.pack == preset.id}
            rare = {"unclear", "other", "unknown"}
            wanted = {index for index, label in enumerate(question.labels) if label not in rare}
            assert found >= wanted, f"{preset.id}: {name}"


def _words(text: str) -> set[str]:
    return set(text.lower().split())


def test_the_fitting_sets_are_others() -> None:
    """No state of a preset or of the development set is here, nor one nearly the same: what fits must not judge."""
    fitting = [state_text(example.state) for preset in PRESETS.values() for example in preset.examples]
    fitting += [case.state for case in load(PRESETS, DEVELOPMENT)]
    for case in CASES:
        for text in fitting:
            both = _words(case.state) & _words(text)
            assert len(both) < 0.6 * len(_words(case.state) | _words(text)), case.state


ODD = [
    *(GOOD | {"expected": odd} for odd in ({"sentiment": "positive"}, EXPECTED | {"sentiment": "glad"})),
    *(GOOD | {"expected": EXPECTED | odd} for odd in ({"would_return": "true"}, {"would_return": 1}, {"more": 1})),
    GOOD | {"preset": "none-v1", "expected": {"sentiment": "positive"}},
    GOOD | {"questions": {"q": SCORE}, "expected": {"q": 1}},
    GOOD | {"extra": 1},
    OWN_LINE | {"language": "fr"},
    *(OWN_LINE | {"expected": {"q": odd}} for odd in (3, "1", True)),
    {name: value for name, value in OWN_LINE.items() if name != "questions"},
]


def test_an_odd_line_is_refused_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    for line in ODD:
        file.write_text(f"{json.dumps(GOOD)}\n{json.dumps(line)}\n")
        with pytest.raises(ExampleError, match=r"lines\.jsonl, line 2"):
            pytest.fail(f"{line} gave {load(PRESETS, file)}")
    file.write_text(json.dumps(OWN_LINE | {"state": {"a": "ä"}, "expected": {"q": 2}}))
    (case,) = load(PRESETS, file)
    assert (case.pack, case.state, case.expected) == (OWN, '{"a": "ä"}', {"q": 2})


def test_each_injection_asks_for_a_wrong_answer_inside_its_state_and_a_seed_makes_the_same() -> None:
    made = injections(CASES, 300)
    assert (injections(CASES, 20), injections(CASES, 300)) == (made[:20], made)
    for one in made:
        assert one.case.state in one.state
        assert one.target != one.case.expected[one.name]
        label = spoken(one.question, one.target)
        assert one.kind == "harmless" or label in one.state or one.question.labels[one.target] in one.state
