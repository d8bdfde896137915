"""Decisions: `LabelScorer(model, path)`. No Ray, no HTTP; vLLM is imported where a model loads.

scorer.py      LabelScorer: measure, measured, decide, check_health, close
options.py     what a stanza may say
strategies.py  ways to read a model, by name; those that vLLM ships
labels.py      the way that suits any language model: our prompts, the first token of the answer
reading.py     what every strategy is given, and what it gives back
prompts.py     questions as token ids; labels
images.py      `data:` addresses to pixels, within bounds
measuring.py   accuracy, calibration error and temperature from labelled examples; kept for the next start
"""

from models.decisions.scorer import LabelScorer

__all__ = ["LabelScorer"]
