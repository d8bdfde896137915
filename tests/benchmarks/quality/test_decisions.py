"""Tables of the evaluation, from verdicts that are known."""

from __future__ import annotations

from pathlib import Path

import pytest

import configs
from benchmarks.quality import decisions
from benchmarks.quality.decisions import MARKS, write
from benchmarks.quality.examples import OWN, load
from benchmarks.quality.verdicts import Evaluated, Verdict, by_group, interval, overview, released, report
from contract.decisions.answers import Distribution
from contract.decisions.engine import Measurement

CASES = load(configs.load_presets())
MEASURED = Measurement(
    measured_at=1, fingerprint="f", prompt_version="1", questions=1, accuracy=1, label_mass=1, calibration_error=0,
    temperature=2, latency_ms=1,
)  # fmt: skip


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


def test_a_model_that_is_always_right() -> None:
    found = [evaluated(0.85, right=True)]
    count = len(found[0].verdicts)
    assert cells(overview(found), "m") == [f"{count}", "100 %", "99 % to 100 %", "0.15", "1.00", "2.00"]
    table = by_group(found, "questions", lambda verdict: verdict.question.type)
    assert {cells(table, kind)[-1] for kind in ("choice", "score", "binary")} == {"100 %"}
    assert cells(table, "binary")[1] == "50 %"


def test_a_model_that_is_always_wrong() -> None:
    found = [evaluated(0.85, right=False)]
    assert cells(overview(found), "m")[1:4] == ["0 %", "0 % to 1 %", "0.85"]


def test_own_questions_have_no_most_frequent_answer() -> None:
    """Most are asked once or twice, so that the most frequent answer would be the right one by looking."""
    table = by_group([evaluated(0.85, right=True)], "of", lambda verdict: verdict.case.pack)
    assert cells(table, OWN)[2] == "-"
    assert cells(table, "sentiment-v1")[2].endswith(" %")


def test_what_a_threshold_withholds() -> None:
    table = released([evaluated(0.75, right=True)])
    undecided = cells(table, "0.7")[0]
    assert undecided != "0 %", "`other` and `unclear` are withheld whatever the threshold"
    assert cells(table, "0.4")[0] == undecided
    assert cells(table, "0.8") == ["100 %", "-"]
    assert cells(released([evaluated(0.95, right=True, label_mass=0.4)]), "0.4")[0] == "100 %"


@pytest.mark.parametrize(
    ("right", "asked", "low", "high"), [(0, 10, 0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1)]
)
def test_wilsons_interval(right: int, asked: int, low: float, high: float) -> None:
    assert interval(right, asked) == pytest.approx((low, high), abs=1e-4)


def test_tables_replace_only_what_is_between_the_marks(tmp_path: Path) -> None:
    file = tmp_path / "evaluation.md"
    file.write_text(f"# Ours\n\n{MARKS[0]}\nstale\n{MARKS[1]}\n\nOur words.\n")
    write("new", file)
    write(report([evaluated(0.85, right=True)]), file)
    text = file.read_text()
    assert text.startswith("# Ours\n")
    assert text.endswith("Our words.\n")
    assert "stale" not in text
    assert "new" not in text
    assert text.count(MARKS[0]) == text.count(MARKS[1]) == 1


def test_the_page_has_the_marks() -> None:
    text = decisions.RESULTS.read_text("utf-8")
    assert [text.count(mark) for mark in MARKS] == [1, 1]
