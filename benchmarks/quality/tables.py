"""The tables of an evaluation as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from benchmarks.quality.examples import OWN
from benchmarks.quality.verdicts import Evaluated, Verdict, accuracy, interval, most_frequent
from contract.decisions.answers import ABSTAINING, abstain_reasons
from contract.decisions.questions import Policy
from models.decisions.calibration import calibration_error

THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def report(results: Sequence[Evaluated]) -> str:
    return "\n\n".join(
        [overview(results), by_group(results, "questions", _kind), by_group(results, "of", _pack), released(results)]
    )


def _kind(verdict: Verdict) -> str:
    return verdict.question.type


def _pack(verdict: Verdict) -> str:
    return verdict.case.pack


def overview(results: Sequence[Evaluated]) -> str:
    lines = [
        "| model | questions | right | 95 % interval | calibration error | label mass | temperature |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in results:
        low, high = interval(sum(v.right for v in each.verdicts), len(each.verdicts))
        error = calibration_error([v.judged for v in each.verdicts])
        mass = statistics.fmean(v.distribution.label_mass for v in each.verdicts)
        lines.append(
            f"| {each.model_id} | {len(each.verdicts)} | {_percent(accuracy(each.verdicts))} | "
            f"{_percent(low)} to {_percent(high)} | {error:.2f} | {mass:.2f} | {each.measured.temperature:.2f} |"
        )
    return "\n".join(lines)


def by_group(results: Sequence[Evaluated], title: str, key: Callable[[Verdict], str]) -> str:
    """Accuracy by what `key` says, beside the two ways to answer without reading."""
    ids = [each.model_id for each in results]
    lines = [
        f"| {title} | asked | any option | most frequent answer | {' | '.join(ids)} |",
        "|---" * (4 + len(ids)) + "|",
    ]
    frequent = most_frequent(results[0].verdicts)
    groups = list(dict.fromkeys(map(key, results[0].verdicts)))
    for group in groups:
        rows = [[v for v in each.verdicts if key(v) == group] for each in results]
        first = rows[0]
        chance = statistics.fmean(1 / len(v.question.labels) for v in first)
        likely = [v.expected == frequent[v.case.pack, v.name] for v in first if v.case.pack != OWN]
        majority = _percent(statistics.fmean(likely)) if likely else "-"
        cells = " | ".join(_percent(accuracy(row)) for row in rows)
        lines.append(f"| {group} | {len(first)} | {_percent(chance)} | {majority} | {cells} |")
    return "\n".join(lines)


def released(results: Sequence[Evaluated]) -> str:
    """What a policy with a threshold withholds, and how often the rest is right."""
    lines = [
        "| threshold | " + " | ".join(f"{each.model_id}: withheld | right of the rest" for each in results) + " |",
        "|---" * (1 + 2 * len(results)) + "|",
    ]
    for threshold in THRESHOLDS:
        policy = Policy(mode="threshold", threshold=threshold)
        cells = []
        for each in results:
            rest = [
                v for v in each.verdicts if not ABSTAINING & set(abstain_reasons(v.question, v.distribution, policy))
            ]
            withheld = 1 - len(rest) / len(each.verdicts)
            cells += [_percent(withheld), f"{_percent(accuracy(rest))} of {len(rest)}" if rest else "-"]
        lines.append(f"| {threshold} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
