"""One question as a model answered it, and what many of them add up to."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.quality.examples import Case
from contract.decisions.answers import Distribution
from contract.decisions.engine import Measurement
from contract.decisions.questions import Question


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
