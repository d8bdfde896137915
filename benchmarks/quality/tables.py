"""The tables of an evaluation as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from benchmarks.quality.examples import OWN
from benchmarks.quality.verdicts import Evaluated, Verdict, accuracy, interval, most_frequent
from contract.decisions.answers import ABSTAINING, abstain_reasons
from contract.decisions.questions import Policy
from models.decisions.measuring import calibration_error

THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def report(found: Sequence[Evaluated]) -> str:
    """Every table as Markdown."""
    return "\n\n".join(
        [overview(found), by_group(found, "questions", _kind), by_group(found, "of", _pack), released(found)]
    )


def _kind(verdict: Verdict) -> str:
    return verdict.question.type


def _pack(verdict: Verdict) -> str:
    return verdict.case.pack


def overview(found: Sequence[Evaluated]) -> str:
    """One row for each model."""
    lines = [
        "| model | questions | right | 95 % interval | calibration error | label mass | temperature |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found:
        low, high = interval(sum(v.right for v in one.verdicts), len(one.verdicts))
        error = calibration_error([v.judged for v in one.verdicts])
        mass = statistics.fmean(v.found.label_mass for v in one.verdicts)
        lines.append(
            f"| {one.model_id} | {len(one.verdicts)} | {_percent(accuracy(one.verdicts))} | "
            f"{_percent(low)} to {_percent(high)} | {error:.2f} | {mass:.2f} | {one.measured.temperature:.2f} |"
        )
    return "\n".join(lines)


def by_group(found: Sequence[Evaluated], title: str, key: Callable[[Verdict], str]) -> str:
    """Accuracy by what `key` says, beside the two ways to answer without reading."""
    ids = [one.model_id for one in found]
    lines = [
        f"| {title} | asked | any option | most frequent answer | {' | '.join(ids)} |",
        "|---" * (4 + len(ids)) + "|",
    ]
    frequent = most_frequent(found[0].verdicts)
    groups = list(dict.fromkeys(map(key, found[0].verdicts)))
    for group in groups:
        rows = [[v for v in one.verdicts if key(v) == group] for one in found]
        first = rows[0]
        chance = statistics.fmean(1 / len(v.question.labels) for v in first)
        known = [v.expected == frequent[v.case.pack, v.name] for v in first if v.case.pack != OWN]
        majority = _percent(statistics.fmean(known)) if known else "-"
        cells = " | ".join(_percent(accuracy(row)) for row in rows)
        lines.append(f"| {group} | {len(first)} | {_percent(chance)} | {majority} | {cells} |")
    return "\n".join(lines)


def released(found: Sequence[Evaluated]) -> str:
    """What a policy with a threshold withholds, and how often the rest is right."""
    lines = [
        "| threshold | " + " | ".join(f"{one.model_id}: withheld | right of the rest" for one in found) + " |",
        "|---" * (1 + 2 * len(found)) + "|",
    ]
    for threshold in THRESHOLDS:
        policy = Policy(mode="threshold", threshold=threshold)
        cells = []
        for one in found:
            rest = [v for v in one.verdicts if not ABSTAINING & set(abstain_reasons(v.question, v.found, policy))]
            withheld = 1 - len(rest) / len(one.verdicts)
            cells += [_percent(withheld), f"{_percent(accuracy(rest))} of {len(rest)}" if rest else "-"]
        lines.append(f"| {threshold} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
