"""SimilarityScorer: a sentence embedder as a decision model. Late interaction: token vectors are compared, not texts.

    state   -> windows -> network -> token vectors --+
                                                     +-> MaxSim of each option -------+
    options -> `id: description` -> token vectors ---+                                +-> softmax -> probabilities
    examples of the same question, as presets have them -> MaxSim with the state -----+

MaxSim of an option is the mean, over its tokens, of the best cosine with any token of the state. So a long state is
read whole, window by window, and what answers a question may stand anywhere in it. The text of a question itself is not
read: it is the same for all of its options.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.catalog import DecisionModel
from contract.decisions.engine import DecisionJob, Reading, Readings
from contract.decisions.presets import Preset
from contract.decisions.questions import BinaryQuestion, ChoiceQuestion, Question, state_text
from models.decisions import measuring
from models.decisions.kept import Kept, Text
from models.decisions.measured import MeasuredScorer
from models.encoders import IMPORTS, Encoder, EncoderOptions, Tokens
from models.options import read
from models.weights import store as weights
from models.weights.files import need_folder

VERSION = "1"

OPTION_SCALE, EXAMPLE_SCALE = 13.9, 11.8
"""What a difference of similarity is worth, as a logarithm: fitted to `evaluations/examples/development.jsonl` by
`python -m evaluations similarity`."""

MARKS = 2
"""Tokens of begin and end around each window. They are ours, and not counted."""


@dataclass(frozen=True, slots=True)
class Example:
    """A labelled state of a preset's question. `vectors` are those of its tokens; `label` counts options from 0."""

    state: str
    vectors: Any
    label: int


@dataclass(frozen=True, slots=True)
class Likeness:
    """How like a state each option of one question is, and its examples; the second is 0 where there are none."""

    options: tuple[float, ...]
    examples: tuple[float, ...]


class SimilarityScorer(MeasuredScorer):
    """An embedder that compares a state with the options of a question. Raises OptionsError, WeightsError.

    All probability is on the options: it could have said nothing else, so label mass is 1.
    """

    options_type = EncoderOptions
    imports = IMPORTS
    version = VERSION

    def __init__(self, model: DecisionModel, path: Path | None) -> None:
        super().__init__(model, calibrated=False, images=False)
        self._path = need_folder(path, model.id)
        self._encoder = Encoder("AutoModel", model, self._path, read(model, EncoderOptions))
        self._batcher = self._encoder.batcher(self._run)
        self._examples: Mapping[str, list[Example]] = {}
        self._kept = Kept()

    async def prepare(self, presets: Sequence[Preset]) -> None:
        """Reads the states of the examples, which are compared with what clients send."""
        found: dict[str, list[Example]] = {}
        for preset in presets:
            for example in preset.examples:
                state = state_text(example.state)
                vectors = (await self._read([state], ""))[state].vectors
                for name, question in preset.questions.items():
                    label = preset.expected_index(name, example.expected[name])
                    found.setdefault(_key(question), []).append(Example(state, vectors, label))
        self._examples = found

    async def read_job(self, job: DecisionJob, temperature: float) -> Readings:
        """A reading for each question, in order. All have the same `inference_s`, because they are read together."""
        started = time.perf_counter()
        likenesses, texts = await self.compare(job)
        spent_s = time.perf_counter() - started
        reads = tuple(Reading(_logprobs(likeness), spent_s) for likeness in likenesses)
        tokens, windows = sum(text.tokens for text in texts.values()), sum(text.windows for text in texts.values())
        return Readings(reads, tokens, temperature, passes=windows)

    async def compare(self, job: DecisionJob) -> tuple[list[Likeness], Mapping[str, Text]]:
        """Similarities before they become probabilities, and the texts they are of.

        Options that were read before are not read again, but count as if: no bill depends on what was asked before.
        """
        asked = [wordings(question) for question in job.questions]
        options = list(dict.fromkeys(text for options in asked for text in options))
        owner = job.cache_salt or ""
        known = self._kept.known(owner, options)
        texts = known | await self._read([job.state, *(text for text in options if text not in known)], owner)
        self._kept.keep(owner, {text: texts[text] for text in options})
        pairs = list(zip(job.questions, asked, strict=True))
        return await asyncio.to_thread(lambda: [self._likeness(job.state, *pair, texts) for pair in pairs]), texts

    async def check_health(self) -> None:
        """Raises RuntimeError if the model makes no progress."""
        self._batcher.check()

    def close(self) -> None:
        self._batcher.close()

    def fingerprint(self, presets: Sequence[Preset]) -> str:
        """Of weights, scales and examples."""
        packs: list[Any] = [preset.model_dump() for preset in presets]
        how = (VERSION, OPTION_SCALE, EXAMPLE_SCALE, str(self._encoder.dtype))
        return measuring.fingerprint(weights.hashes_of(self.model, self._path), how, packs)

    def _likeness(self, state: str, question: Question, options: Sequence[str], texts: Mapping[str, Text]) -> Likeness:
        judged = texts[state].vectors
        # An example says nothing about itself: whoever sends one gets a reading and not the answer that is filed.
        known = [example for example in self._examples.get(_key(question), ()) if example.state != state]
        near = [_both_ways(judged, example.vectors) for example in known]
        middle = sum(near) / len(near) if near else 0.0
        best = [
            max((one for one, example in zip(near, known, strict=True) if example.label == label), default=middle)
            for label in range(len(options))
        ]
        return Likeness(
            tuple(_max_sim(texts[text].vectors, judged) for text in options), tuple(one - middle for one in best)
        )

    async def _read(self, texts: Sequence[str], owner: str) -> dict[str, Text]:
        """Each different text."""
        import numpy as np

        different = list(dict.fromkeys(texts))
        windows = await self._encoder.windows(different)
        items = [window for text in windows for window in text]
        made = iter(await self._batcher.submit(items, owner))
        return {
            text: Text(
                np.concatenate([next(made) for _ in parts]),
                tokens=sum(max(0, len(part) - MARKS) for part in parts),
                windows=len(parts),
            )
            for text, parts in zip(different, windows, strict=True)
        }

    def _run(self, items: list[Tokens]) -> list[Any]:
        import torch

        with torch.inference_mode():
            output, _mask = self._encoder.forward(items)
            hidden = torch.nn.functional.normalize(output.last_hidden_state.float(), dim=2).cpu().numpy()
        # Without the marks of begin and end, unless there is nothing else.
        return [
            row[1 : len(item) - 1] if len(item) > MARKS else row[: len(item)]
            for row, item in zip(hidden, items, strict=True)
        ]


def wordings(question: Question) -> list[str]:
    """Each option as it is compared with the state."""
    if isinstance(question, BinaryQuestion):
        return [question.true_description, question.false_description]
    if isinstance(question, ChoiceQuestion):
        names = ((option.id.replace("_", " "), option.description) for option in question.options)
        return [f"{name}: {description}" if description else name for name, description in names]
    return list(question.levels)


def _key(question: Question) -> str:
    """The same for questions that ask the same."""
    return question.model_dump_json()


def _max_sim(text: Any, state: Any) -> float:
    return float((text @ state.T).max(1).mean())


def _both_ways(one: Any, other: Any) -> float:
    cosines = one @ other.T
    return float(cosines.max(1).mean() + cosines.max(0).mean()) / 2


def _logprobs(likeness: Likeness) -> tuple[float, ...]:
    """Natural logarithms of probabilities that add up to 1."""
    import numpy as np

    weighed = OPTION_SCALE * np.array(likeness.options) + EXAMPLE_SCALE * np.array(likeness.examples)
    weighed -= weighed.max()
    return tuple((weighed - np.log(np.exp(weighed).sum())).tolist())
