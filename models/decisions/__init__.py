"""Decisions: `LabelScorer`, `SimilarityScorer`. vLLM and torch are imported as a model loads.

measured_scorer.py  what both share: measure, measured, decide
calibration.py      accuracy, calibration error and temperature from labelled examples; stored for the next start
label_scorer.py     LabelScorer: a language model, by the probability of labels
prompts.py          questions as token ids; labels
similarity.py       SimilarityScorer: a sentence embedder, by the likeness of state and options
phrases.py          how questions are worded for it, and ordinary texts that a statement is compared with
token_vectors.py    texts as vectors of their tokens, cached by owner and compared
"""

from models.decisions.label_scorer import LabelScorer
from models.decisions.similarity import SimilarityScorer

__all__ = ["LabelScorer", "SimilarityScorer"]
