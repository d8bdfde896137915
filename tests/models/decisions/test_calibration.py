"""Accuracy, calibration error and temperature from labelled readings."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from contract.decisions.engine import Reading
from models.decisions import calibration
from models.decisions.calibration import Labelled, calibration_error, fitted_temperature, measurement


def drawn(count: int, temperature: float, seed: int = 1) -> list[Labelled]:
    """Readings whose right answers were drawn from their own distribution under `temperature`."""
    dice, labelled = random.Random(seed), []
    for _ in range(count):
        logprobs = [dice.gauss(0, 2) for _ in range(4)]
        weights = [math.exp(value / temperature) for value in logprobs]
        total = math.log(sum(map(math.exp, logprobs)))
        expected = dice.choices(range(4), weights)[0]
        labelled.append(Labelled(Reading(tuple(v - total for v in logprobs), 0.001), expected))
    return labelled


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0, 3.5])
def test_the_temperature_is_found_again(temperature: float) -> None:
    assert fitted_temperature(drawn(4000, temperature)) == pytest.approx(temperature, rel=0.15)


def test_the_temperature_stays_within_bounds() -> None:
    sure = [Labelled(Reading((-0.1, -2.0), 0.001), 0)] * 9
    wrong = [Labelled(Reading((-0.1, -2.0), 0.001), 1)] * 9
    assert fitted_temperature(sure) == pytest.approx(0.25, rel=1e-3)
    assert fitted_temperature(wrong) == pytest.approx(4, rel=1e-3)


def test_calibration_error() -> None:
    assert calibration_error([(0.75, True), (0.75, True), (0.75, True), (0.75, False)]) == 0
    assert calibration_error([(1.0, False), (1.0, True)]) == 0.5
    assert calibration_error([(0.55, True), (0.95, False)]) == pytest.approx((0.45 + 0.95) / 2)


def test_a_fitted_temperature_calibrates() -> None:
    labelled = drawn(4000, 3.0)
    plain, fitted = (
        measurement(labelled, calibrated=calibrated, fingerprint="f", prompt_version="1")
        for calibrated in (False, True)
    )
    assert (plain.temperature, plain.accuracy) == (1.0, fitted.accuracy)
    assert fitted.temperature == pytest.approx(3, rel=0.15)
    assert fitted.calibration_error < 0.04 < plain.calibration_error
    assert (plain.questions, plain.label_mass) == (4000, pytest.approx(1))


def test_a_measurement_is_kept_for_the_next_start(tmp_path: Path) -> None:
    made = measurement(drawn(10, 1.0), calibrated=True, fingerprint="f" * 32, prompt_version="1")
    assert calibration.load(tmp_path / "m", made.fingerprint) is None
    calibration.save(tmp_path / "m", made)
    assert calibration.load(tmp_path / "m", made.fingerprint) == made
    assert calibration.load(tmp_path / "m", "0" * 32) is None


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"measured_at": 1}'])
def test_a_measurement_that_cannot_be_read_is_made_again(tmp_path: Path, content: str) -> None:
    (tmp_path / "f.json").write_text(content)
    assert calibration.load(tmp_path, "f") is None


def test_a_folder_that_cannot_be_written_does_not_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = measurement(drawn(10, 1.0), calibrated=False, fingerprint="f", prompt_version="1")
    calibration.save(tmp_path / "file" / "m", made)


def test_the_fingerprint_depends_on_every_part() -> None:
    marks = {calibration.fingerprint({"a": "1"}, "1", {}), calibration.fingerprint({"a": "2"}, "1", {})}
    assert len(marks | {calibration.fingerprint({"a": "1"}, "2", {})}) == 3
    assert calibration.fingerprint({"a": 1, "b": 2}) == calibration.fingerprint({"b": 2, "a": 1})
