"""One question as a model answered it, what many of them add up to, and their tables."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.quality.examples import OWN, Case
from benchmarks.tables import table
from contract.decisions.answers import ABSTAINING, Distribution, abstain_reasons
from contract.decisions.engine import Measurement
from contract.decisions.questions import Policy, Question
from models.decisions.calibration import calibration_error

THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One question of one example as a model answered it."""

    case: Case
    name: str
    distribution: Distribution

    @property
    def question(self) -> Question:
        return self.case.questions[self.name]

    @property
    def expected(self) -> int:
        return self.case.expected[self.name]

    @property
    def right(self) -> bool:
        """Whether the most likely label is the expected one."""
        return self.distribution.best == self.expected

    @property
    def judged(self) -> tuple[float, bool]:
        """Confidence and rightness, as the calibration error wants them."""
        return max(self.distribution.probabilities), self.right


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A model, what its start measured, and every verdict in the order of the file."""

    model_id: str
    measured: Measurement
    verdicts: list[Verdict]


def accuracy(verdicts: Sequence[Verdict]) -> float:
    return statistics.fmean(v.right for v in verdicts)


def most_frequent(verdicts: Sequence[Verdict]) -> dict[tuple[str, str], int]:
    """The answer of each preset's question that is expected most often here."""
    expected: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for verdict in verdicts:
        expected[verdict.case.pack, verdict.name][verdict.expected] += 1
    return {name: counts.most_common(1)[0][0] for name, counts in expected.items()}


def interval(right: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share: where it lies if other examples of this kind had been drawn."""
    share, spread = right / total, z * z / total
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return middle - half, middle + half


def report(results: Sequence[Evaluated]) -> str:
    return "\n\n".join(
        [overview(results), by_group(results, "questions", _kind), by_group(results, "of", _pack), released(results)]
    )


def _kind(verdict: Verdict) -> str:
    return verdict.question.type


def _pack(verdict: Verdict) -> str:
    return verdict.case.pack


def overview(results: Sequence[Evaluated]) -> str:
    rows = []
    for each in results:
        low, high = interval(sum(v.right for v in each.verdicts), len(each.verdicts))
        error = calibration_error([v.judged for v in each.verdicts])
        mass = statistics.fmean(v.distribution.label_mass for v in each.verdicts)
        shares = _percent(accuracy(each.verdicts)), f"{_percent(low)} to {_percent(high)}"
        numbers = (f"{number:.2f}" for number in (error, mass, each.measured.temperature))
        rows.append((each.model_id, len(each.verdicts), *shares, *numbers))
    return table("model | questions | right | 95 % interval | calibration error | label mass | temperature", rows)


def by_group(results: Sequence[Evaluated], title: str, key: Callable[[Verdict], str]) -> str:
    """Accuracy by what `key` says, beside the two ways to answer without reading."""
    rows = []
    frequent = most_frequent(results[0].verdicts)
    for group in dict.fromkeys(map(key, results[0].verdicts)):
        by_model = [[v for v in each.verdicts if key(v) == group] for each in results]
        first = by_model[0]
        chance = statistics.fmean(1 / len(v.question.labels) for v in first)
        likely = [v.expected == frequent[v.case.pack, v.name] for v in first if v.case.pack != OWN]
        majority = _percent(statistics.fmean(likely)) if likely else "-"
        rows.append((group, len(first), _percent(chance), majority, *(_percent(accuracy(each)) for each in by_model)))
    ids = " | ".join(each.model_id for each in results)
    return table(f"{title} | asked | any option | most frequent answer | {ids}", rows)


def released(results: Sequence[Evaluated]) -> str:
    """Share that a policy with a threshold withholds, and accuracy of the rest."""
    rows = []
    for threshold in THRESHOLDS:
        policy = Policy(mode="threshold", threshold=threshold)
        cells: list[object] = [threshold]
        for each in results:
            rest = [
                v for v in each.verdicts if not ABSTAINING & set(abstain_reasons(v.question, v.distribution, policy))
            ]
            withheld = 1 - len(rest) / len(each.verdicts)
            cells += [_percent(withheld), f"{_percent(accuracy(rest))} of {len(rest)}" if rest else "-"]
        rows.append(cells)
    columns = " | ".join(f"{each.model_id}: withheld | right of the rest" for each in results)
    return table(f"threshold | {columns}", rows)


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
