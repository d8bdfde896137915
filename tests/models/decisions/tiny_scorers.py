"""Scorers over tiny models: a stanza, an engine, and a measurement that nobody made."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from contract.catalog import DecisionModel, Serving
from contract.decisions.engine import DecisionJob, Measurement
from contract.decisions.questions import Question
from models.decisions import LabelScorer

WINDOW = 2048
QUESTIONS: tuple[Question, ...] = TypeAdapter(tuple[Question, ...]).validate_python(
    [
        {
            "type": "choice",
            "instructions": "Which team?",
            "options": [{"id": "billing", "description": "money"}, {"id": "sales"}, {"id": "other"}],
        },
        {"type": "score", "instructions": "How urgent?", "levels": ["low", "middle", "high"]},
        {"type": "binary", "instructions": "Angry?", "true_description": "angry", "false_description": "calm"},
    ]
)
STATE = "My invoice is wrong and I was charged twice."


def job(
    state: str = STATE, questions: Sequence[Question] = QUESTIONS, images: Sequence[str] = (), owner: str = ""
) -> DecisionJob:
    return DecisionJob(state, tuple(questions), tuple(images), owner)


def stanza(threads: int, **options: Any) -> DecisionModel:
    # In bfloat16 rounding, which the processor and the rows of a step decide, may change an answer more than its image.
    engine = {"dtype": "float32", "enforce_eager": True, "max_num_seqs": 32, "kv_cache_memory_bytes": 1 << 27}
    serving = Serving(
        adapter="models.decisions:LabelScorer",
        runtime="tiny",
        weights="tiny",
        threads=threads,
        options={"engine": engine} | options,
    )
    return DecisionModel(id="tiny", owned_by="tests", via="t", context_window=WINDOW, serving=serving)


def start(path: Path, threads: int = 1, **options: Any) -> LabelScorer:
    scorer = LabelScorer(stanza(threads, **options), path)
    figures = {"questions": 1, "accuracy": 1.0, "label_mass": 1.0, "calibration_error": 0.0, "temperature": 1.0}
    scorer._measurement = Measurement(measured_at=0, fingerprint="f", prompt_version="1", latency_ms=1.0, **figures)
    return scorer
