"""What is known of a runtime before it may answer. Spec 4, GET /decisions/models."""

from __future__ import annotations

from contract.catalog import Frozen


class Measurement(Frozen):
    """A runtime on the examples of the presets.

    Attributes:
        measured_at: Unix time.
        fingerprint: of weights, wording, options and examples; another one needs another measurement.
        prompt_version: of the wording around state and questions.
        questions: how many labelled answers went in.
        accuracy: share of questions whose most likely option was the expected one.
        label_mass: mean probability on the allowed options.
        calibration_error: expected calibration error in ten bins, each half judged with the other half's temperature.
        temperature: in use; 1 where the model is read as it is.
        latency_ms: median time of one question with its state.
    """

    measured_at: int
    fingerprint: str
    prompt_version: str
    questions: int
    accuracy: float
    label_mass: float
    calibration_error: float
    temperature: float
    latency_ms: float
