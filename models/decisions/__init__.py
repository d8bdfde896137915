"""Decisions: `LabelScorer`, `ThroughScorer`, `SimilarityScorer`. vLLM and torch are imported as a model loads.

measured.py    what both share: measure, measured, decide
similarity.py  SimilarityScorer: a sentence embedder, by the likeness of state and options
phrases.py     how questions are worded for it
ordinary.py    what a statement is compared with besides the state
kept.py        what it has read of options, so that the same questions about the next text cost less
scorer.py      LabelScorer: a language model, by the probability of labels
through.py     ThroughScorer: the same, read by the replicas of a chat model that has the same weights
options.py     what a stanza may say
strategies.py  ways to read a model, by name; those that vLLM ships
labels.py      the way that suits any language model: our prompts, the first token of the answer
reading.py     what every strategy is given, and what it gives back
prompts.py     questions as token ids; labels
images.py      `data:` addresses to pixels, within bounds
measuring.py   accuracy, calibration error and temperature from labelled examples; kept for the next start
"""

from models.decisions.scorer import LabelScorer
from models.decisions.similarity import SimilarityScorer
from models.decisions.through import ThroughScorer

__all__ = ["LabelScorer", "SimilarityScorer", "ThroughScorer"]
