"""Decisions by label reads: `LabelScorer(model, path)`. No Ray, no HTTP; vLLM is imported where a model loads.

scorer.py      LabelScorer: measure, decide, check_health, close
prompts.py     questions as token ids; labels; what clients send never becomes a control token
measuring.py   accuracy, calibration error and temperature from labelled examples; kept for the next start
"""

from models.decisions.scorer import LabelScorer

__all__ = ["LabelScorer"]
