"""SimilarityScorer: a sentence embedder as a decision model. Late interaction: token vectors are compared, not texts.

    state   -> windows -> network -> token vectors --+
                                                     +-> MaxSim of each option -------+
    options -> phrases (phrases.py) -> token vectors +                                +-> softmax -> probabilities
    examples of the same question, as presets have them -> MaxSim with the state -----+

MaxSim of an option is the mean, over its tokens, of the best cosine with any token of the state. So a long state is
read whole, window by window, and what answers a question may stand anywhere in it.

A statement, asked with options that say nothing by themselves, holds as far as it is liker to the state than to
ordinary texts (ordinary.py): to as many of their tokens, for a long text is liker to anything.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.catalog import DecisionModel
from contract.decisions.engine import DecisionJob, Reading, Readings
from contract.decisions.presets import Preset
from contract.decisions.questions import Question, state_text
from models.decisions import measuring
from models.decisions.kept import Kept, Text
from models.decisions.measured import MeasuredScorer
from models.decisions.ordinary import ORDINARY
from models.decisions.phrases import Asked, Phrase, posed
from models.encoders import IMPORTS, Encoder, EncoderOptions, Tokens
from models.options import read
from models.weights import store as weights
from models.weights.files import need_folder

VERSION = "2"

OPTION_SCALE, EXAMPLE_SCALE = 13.9, 11.8
"""What a difference of similarity is worth, as a logarithm: fitted to `benchmarks/quality/examples/development.jsonl`
by `python -m benchmarks.quality similarity`."""

STATEMENT_SCALE, MARGIN = 10.0, 0.04
"""The same of a statement, and how much liker than ordinary texts one is that holds as likely as not. Chosen, not
fitted: `benchmarks/quality/results/decisions.md` has the table."""

TWICE_AS_LONG = 0.065
"""So much liker to a false statement is a text of twice as many tokens: of 500 to 2,000 tokens, from texts of the
evaluation set that stood one after the other."""

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
    """How like a state each option of one question is, and its examples; 0 where there are none.

    `statements` is 0 but for what is asked of a statement: by how much more than ordinary texts the state is like it.
    """

    options: tuple[float, ...]
    examples: tuple[float, ...]
    statements: tuple[float, ...]


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
        self._ordinary: Sequence[Any] = ()
        self._kept = Kept()

    async def prepare(self, presets: Sequence[Preset]) -> None:
        """Reads ordinary texts and the states of the examples, which are compared with what clients send."""
        self._ordinary = [await self._read_whole(texts) for texts in ORDINARY.values()]
        found: dict[str, list[Example]] = {}
        for preset in presets:
            for example in preset.examples:
                state = state_text(example.state)
                vectors = await self._read_whole([state])
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
        leads = await self._tokens({phrase.lead for phrase in texts} - {""}, job.cache_salt or "")
        tokens = sum(text.tokens for text in texts.values()) + sum(leads.values())
        return Readings(reads, tokens, temperature, windows=sum(text.windows for text in texts.values()))

    async def compare(self, job: DecisionJob) -> tuple[list[Likeness], Mapping[Phrase, Text]]:
        """Similarities before they become probabilities, and the texts they are of.

        Options that were read before are not read again, but count as if: no bill depends on what was asked before.
        """
        asked = [posed(question) for question in job.questions]
        phrases = list(dict.fromkeys(phrase for one in asked for phrase in one.phrases))
        owner, state = job.cache_salt or "", Phrase("", job.state)
        known = self._kept.known(owner, phrases)
        texts = known | await self._read([state, *(phrase for phrase in phrases if phrase not in known)], owner)
        self._kept.keep(owner, {phrase: texts[phrase] for phrase in phrases})
        return await asyncio.to_thread(lambda: [self._likeness(state, one, texts) for one in asked]), texts

    async def check_health(self) -> None:
        """Raises RuntimeError if the model makes no progress."""
        self._batcher.check()

    def close(self) -> None:
        self._batcher.close()

    def fingerprint(self, presets: Sequence[Preset]) -> str:
        """Of weights, scales and examples."""
        packs: list[Any] = [preset.model_dump() for preset in presets]
        how = (VERSION, OPTION_SCALE, EXAMPLE_SCALE, STATEMENT_SCALE, MARGIN, TWICE_AS_LONG, str(self._encoder.dtype))
        return measuring.fingerprint(weights.hashes_of(self.model, self._path), how, packs)

    def _likeness(self, state: Phrase, asked: Asked, texts: Mapping[Phrase, Text]) -> Likeness:
        question, judged = asked.question, texts[state].vectors
        options = range(len(question.labels))
        likenesses = [_max_sim(texts[phrase].vectors, judged) for phrase in asked.phrases]
        more = 0.0
        if asked.statement:
            told = texts[asked.phrases[0]].vectors
            more = likenesses[0] - max(_usual(told, ordinary, len(judged)) for ordinary in self._ordinary) - MARGIN
            likenesses = [0.0 for _ in options]
        # An example says nothing about itself: whoever sends one gets a reading and not the answer that is filed.
        known = [example for example in self._examples.get(_key(question), ()) if example.state != state.text]
        near = [_both_ways(judged, example.vectors) for example in known]
        middle = sum(near) / len(near) if near else 0.0
        best = [
            max((one for one, example in zip(near, known, strict=True) if example.label == label), default=middle)
            for label in options
        ]
        return Likeness(
            tuple(likenesses),
            tuple(one - middle for one in best),
            tuple(more if asked.statement and index == asked.statement.option else 0.0 for index in options),
        )

    async def _tokens(self, texts: Iterable[str], owner: str) -> dict[str, int]:
        """How many tokens each text has; nothing is read."""
        listed = list(texts)
        windows = await self._encoder.windows(listed, owner) if listed else []
        return {text: _count(parts) for text, parts in zip(listed, windows, strict=True)}

    async def _read_whole(self, texts: Sequence[str]) -> Any:
        """Vectors of all texts, one after the other."""
        import numpy as np

        phrases = [Phrase("", text) for text in texts]
        found = await self._read(phrases, "")
        return np.concatenate([found[phrase].vectors for phrase in phrases])

    async def _read(self, phrases: Sequence[Phrase], owner: str) -> dict[Phrase, Text]:
        """Each different phrase. Of what has a lead, the tokens of the lead are read and left out."""
        import numpy as np

        different = list(dict.fromkeys(phrases))
        leads = await self._tokens({phrase.lead for phrase in different}, owner)
        windows = await self._encoder.windows([f"{lead} {text}" if lead else text for lead, text in different], owner)
        items = [window for text in windows for window in text]
        made = iter(await self._batcher.submit(items, owner))
        found = {}
        for phrase, parts in zip(different, windows, strict=True):
            vectors, before = np.concatenate([next(made) for _ in parts]), leads[phrase.lead]
            # Copied, for a view would keep the lead as well. What has no token of its own is compared by its lead.
            own = vectors[before:].copy() if len(vectors) > before else vectors
            found[phrase] = Text(own, tokens=max(0, _count(parts) - before), windows=len(parts))
        return found

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


def _key(question: Question) -> str:
    """The same for questions that ask the same."""
    return question.model_dump_json()


def _max_sim(text: Any, state: Any) -> float:
    return float((text @ state.T).max(1).mean())


def _usual(text: Any, ordinary: Any, tokens: int) -> float:
    """MaxSim of `text` with so many tokens of ordinary texts, in the mean: a long text is liker to anything.

    Where `ordinary` has fewer, what more of them would have added is estimated.
    """
    length = min(tokens, len(ordinary))
    pieces = len(ordinary) // length
    cosines = (text @ ordinary[: pieces * length].T).reshape(len(text), pieces, length)
    return float(cosines.max(2).mean()) + TWICE_AS_LONG * math.log2(max(1.0, tokens / length))


def _count(windows: Sequence[Tokens]) -> int:
    return sum(max(0, len(window) - MARKS) for window in windows)


def _both_ways(one: Any, other: Any) -> float:
    cosines = one @ other.T
    return float(cosines.max(1).mean() + cosines.max(0).mean()) / 2


def _logprobs(likeness: Likeness) -> tuple[float, ...]:
    """Natural logarithms of probabilities that add up to 1."""
    import numpy as np

    weighed = OPTION_SCALE * np.array(likeness.options) + EXAMPLE_SCALE * np.array(likeness.examples)
    weighed += STATEMENT_SCALE * np.array(likeness.statements)
    weighed -= weighed.max()
    return tuple((weighed - np.log(np.exp(weighed).sum())).tolist())
