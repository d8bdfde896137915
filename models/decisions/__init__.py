"""Decisions: `LabelScorer(model, path)`. No Ray, no HTTP; vLLM is imported where a model loads.

scorer.py      LabelScorer: measure, decide, check_health, close
strategies.py  ways to read a model, by name; those that vLLM ships
labels.py      the way that suits any language model: our prompts, the first token of the answer
prompts.py     questions as token ids; labels
plain_text.py  what clients send never becomes a control token
images.py      `data:` addresses to pixels, within bounds
head.py        logits in float32 without making the head again in every step
exact.py       probabilities that nothing else moves
measuring.py   accuracy, calibration error and temperature from labelled examples; kept for the next start
"""

from models.decisions.scorer import LabelScorer

__all__ = ["LabelScorer"]
