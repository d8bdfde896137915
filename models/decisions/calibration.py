"""Calibration of a runtime on labelled examples: accuracy, calibration error, and the best temperature.

The result is stored under `PARLANCE_HOME/measurements`, named by a hash of everything it depends on, so that only the
first start with given weights and wording has to measure.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from contract.decisions.answers import distribution
from contract.decisions.engine import Measurement, Reading

log = logging.getLogger(f"parlance.{__name__}")

BINS = 10
"""Number of bins of the calibration error, of equal width."""
TEMPERATURES = (0.25, 4.0)
"""Bounds of a fitted temperature: a handful of examples must not make a model certain of everything, or of nothing."""
STEPS = 48
"""Steps of the search for a temperature; each narrows the bounds by a third."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A question that a person has answered: what was read, and the index of the right label."""

    reading: Reading
    expected: int


def measurement(
    labelled: Sequence[Labelled], *, calibrated: bool, fingerprint: str, prompt_version: str
) -> Measurement:
    """The measurement of a runtime. `calibrated` fits a temperature, otherwise it is 1.

    Raises UPSTREAM_ERROR if a reading has no probability on any label.
    """
    halves = labelled[::2], labelled[1::2]
    judged: list[tuple[float, bool]] = []
    for judging, other in (halves, halves[::-1]):
        judged += _judged(judging, fitted_temperature(other) if calibrated else 1.0)
    return Measurement(
        measured_at=int(time.time()),
        fingerprint=fingerprint,
        prompt_version=prompt_version,
        questions=len(labelled),
        accuracy=statistics.fmean(right for _, right in judged),
        label_mass=statistics.fmean(distribution(answer.reading, 1.0).label_mass for answer in labelled),
        calibration_error=calibration_error(judged),
        temperature=fitted_temperature(labelled) if calibrated else 1.0,
        latency_ms=statistics.median(answer.reading.inference_s for answer in labelled) * 1000,
    )


def _judged(labelled: Iterable[Labelled], temperature: float) -> list[tuple[float, bool]]:
    """The highest probability of each question, and whether it was that of the right option."""
    pairs = [(distribution(answer.reading, temperature), answer.expected) for answer in labelled]
    return [(max(d.probabilities), d.best == expected) for d, expected in pairs]


def calibration_error(judged: Sequence[tuple[float, bool]]) -> float:
    """Mean gap between confidence and accuracy over ten bins of equal width, weighted by what is in them."""
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for confidence, right in judged:
        bins[min(BINS - 1, int(confidence * BINS))].append((confidence, right))
    gaps = (abs(math.fsum(c for c, _ in bin) - sum(right for _, right in bin)) for bin in bins)
    return math.fsum(gaps) / len(judged)


def fitted_temperature(labelled: Sequence[Labelled]) -> float:
    """The temperature under which the right answers are most likely. The loss has one minimum in 1 / temperature."""
    low, high = (1 / bound for bound in reversed(TEMPERATURES))
    for _ in range(STEPS):
        third = (high - low) / 3
        if _loss(labelled, low + third) <= _loss(labelled, high - third):
            high -= third
        else:
            low += third
    return 2 / (low + high)


def _loss(labelled: Sequence[Labelled], sharpness: float) -> float:
    """Mean negative log-likelihood of the right answers."""
    return math.fsum(_surprise(answer, sharpness) for answer in labelled) / len(labelled)


def _surprise(answer: Labelled, sharpness: float) -> float:
    values = [value for value in answer.reading.logprobs if value is not None]
    right = answer.reading.logprobs[answer.expected]
    if right is None:
        return 0.0  # no temperature brings back what the runtime left out
    highest = max(values)
    return math.log(math.fsum(math.exp((v - highest) * sharpness) for v in values)) - (right - highest) * sharpness


def fingerprint(*parts: object) -> str:
    """A short hash of everything that a measurement depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def load(folder: Path, fingerprint: str) -> Measurement | None:
    """The measurement with this `fingerprint`, if an earlier start stored one that can be read."""
    try:
        stored = Measurement.model_validate_json((folder / f"{fingerprint}.json").read_text())
    except (OSError, ValidationError):
        return None
    return stored if stored.fingerprint == fingerprint else None


def save(folder: Path, result: Measurement) -> None:
    """Stores `result` for the next start. A folder that cannot be written costs a measurement, not the start."""
    target = folder / f"{result.fingerprint}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        partial.write_text(result.model_dump_json(indent=1))
        partial.replace(target)
    except OSError as error:
        log.warning("the measurement could not be stored in `%s`: %s", folder, error.strerror)
