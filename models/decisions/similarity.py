"""SimilarityScorer: a sentence embedder as a decision model. Late interaction: token vectors are compared, not texts.

    state   -> windows -> network -> token vectors --+
                                                     +-> MaxSim of each option -------+
    options -> phrases (phrases.py) -> token vectors +                                +-> softmax -> probabilities
    examples of the same question, as presets have them -> MaxSim with the state -----+

MaxSim of an option is the mean, over its tokens, of the best cosine with any token of the state. So a long state is
read whole, window by window, and what answers a question may stand anywhere in it.

A statement, asked with options that say nothing by themselves, holds as far as it is liker to the state than to
ordinary texts (phrases.py): to as many of their tokens, for a long text is liker to anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.catalog import DecisionModel
from contract.decisions.engine import DecisionJob, Reading, Readings
from contract.decisions.questions import Preset, Question, state_text
from models.decisions import calibration
from models.decisions.measured_scorer import MeasuredScorer
from models.decisions.phrases import ORDINARY_TEXTS, Phrase, WordedQuestion, worded
from models.decisions.token_vectors import (
    LENGTH_GAIN,
    TokenVectorCache,
    TokenVectors,
    expected_max_sim,
    max_sim,
    max_sim_both_ways,
)
from models.encoders import EncoderAdapter, TextEncoder
from models.tokenizer import Tokens
from models.weights import store as weights
from models.weights.files import need_folder

VERSION = "2"

OPTION_SCALE, EXAMPLE_SCALE = 13.9, 11.8
"""Weight of a difference of similarity as a logarithm: fitted to `benchmarks/quality/examples/development.jsonl`
by `python -m benchmarks.quality similarity`."""

STATEMENT_SCALE, MARGIN = 10.0, 0.04
"""The same for a statement, and how much liker than ordinary texts one is that holds with a probability of one half.
Chosen, not fitted: `benchmarks/quality/results/decisions.md` says how."""

SPECIAL_TOKENS = 2
"""Number of tokens of begin and end around each window. They are not the client's, and not counted."""


@dataclass(frozen=True, slots=True)
class LabelledState:
    """A labelled state of a preset's question. `vectors` are those of its tokens; `label` counts options from 0."""

    state: str
    vectors: Any
    label: int


@dataclass(frozen=True, slots=True)
class Similarity:
    """Similarities of a state with each option of one question, and with its examples; 0 if there are none.

    `statements` is 0 unless a statement is judged: by how much more than ordinary texts the state is like it.
    """

    options: tuple[float, ...]
    examples: tuple[float, ...]
    statements: tuple[float, ...]


class SimilarityScorer(EncoderAdapter, MeasuredScorer):
    """An embedder that compares a state with the options of a question. Raises OptionsError, WeightsError.

    All probability is on the options: it could have said nothing else, so label mass is 1.
    """

    version = VERSION

    def __init__(self, model: DecisionModel, path: Path | None) -> None:
        super().__init__(model, calibrated=False, images=False)
        self._path = need_folder(path, model.id)
        self.encoder = TextEncoder("AutoModel", model, self._path)
        self._workers = self.encoder.batcher(self._run)
        self._examples: Mapping[str, list[LabelledState]] = {}
        self._ordinary: Sequence[Any] = ()
        self._cache = TokenVectorCache()

    async def prepare(self, presets: Sequence[Preset]) -> None:
        """Reads ordinary texts and the states of the examples, which are compared with what clients send."""
        self._ordinary = [await self._read_whole(texts) for texts in ORDINARY_TEXTS.values()]
        examples: dict[str, list[LabelledState]] = {}
        for preset in presets:
            for example in preset.examples:
                state = state_text(example.state)
                vectors = await self._read_whole([state])
                for name, question in preset.questions.items():
                    label = preset.expected_index(name, example.expected[name])
                    examples.setdefault(_key(question), []).append(LabelledState(state, vectors, label))
        self._examples = examples

    async def read_job(self, job: DecisionJob, temperature: float) -> Readings:
        """A reading for each question, in order. All have the same `inference_s`, because they are read together."""
        started = time.perf_counter()
        likenesses, texts = await self.compare(job)
        spent_s = time.perf_counter() - started
        reads = tuple(Reading(_logprobs(likeness), spent_s) for likeness in likenesses)
        leads = await self._tokens({phrase.lead for phrase in texts} - {""}, job.owner)
        tokens = sum(text.tokens for text in texts.values()) + sum(leads.values())
        return Readings(reads, tokens, temperature, windows=sum(text.windows for text in texts.values()))

    async def compare(self, job: DecisionJob) -> tuple[list[Similarity], Mapping[Phrase, TokenVectors]]:
        """Similarities before they become probabilities, and the vectors of the texts that were compared.

        Options that were read before are not read again, but are counted all the same: no bill depends on the cache.
        """
        questions = [worded(question) for question in job.questions]
        phrases = list(dict.fromkeys(phrase for question in questions for phrase in question.phrases))
        owner, state = job.owner, Phrase("", job.state)
        cached = self._cache.get(owner, phrases)
        texts = cached | await self._read([state, *(phrase for phrase in phrases if phrase not in cached)], owner)
        self._cache.put(owner, {phrase: texts[phrase] for phrase in phrases})
        return await asyncio.to_thread(lambda: [self._likeness(state, each, texts) for each in questions]), texts

    def fingerprint(self, presets: Sequence[Preset]) -> str:
        packs: list[Any] = [preset.model_dump() for preset in presets]
        how = (VERSION, OPTION_SCALE, EXAMPLE_SCALE, STATEMENT_SCALE, MARGIN, LENGTH_GAIN, str(self.encoder.dtype))
        return calibration.fingerprint(weights.hashes_of(self.model, self._path), how, packs)

    def _likeness(self, state: Phrase, wording: WordedQuestion, texts: Mapping[Phrase, TokenVectors]) -> Similarity:
        question, judged = wording.question, texts[state].vectors
        options = range(len(question.labels))
        likenesses = [max_sim(texts[phrase].vectors, judged) for phrase in wording.phrases]
        surplus = 0.0
        if wording.statement:
            text = texts[wording.phrases[0]].vectors
            expected = max(expected_max_sim(text, ordinary, len(judged)) for ordinary in self._ordinary)
            surplus = likenesses[0] - expected - MARGIN
            likenesses = [0.0 for _ in options]
        # An example says nothing about itself: a client that sends one gets a reading and not the answer on file.
        examples = [example for example in self._examples.get(_key(question), ()) if example.state != state.text]
        near = [max_sim_both_ways(judged, example.vectors) for example in examples]
        middle = sum(near) / len(near) if near else 0.0
        best = [
            max((like for like, example in zip(near, examples, strict=True) if example.label == label), default=middle)
            for label in options
        ]
        return Similarity(
            tuple(likenesses),
            tuple(like - middle for like in best),
            tuple(surplus if wording.statement and index == wording.statement.option else 0.0 for index in options),
        )

    async def _tokens(self, texts: Iterable[str], owner: str) -> dict[str, int]:
        """Returns the number of tokens of each text; the network reads nothing."""
        listed = list(texts)
        windows = await self.encoder.windows(listed, owner) if listed else []
        return {text: _count(parts) for text, parts in zip(listed, windows, strict=True)}

    async def _read_whole(self, texts: Sequence[str]) -> Any:
        """The vectors of all texts, one after the other."""
        import numpy as np

        phrases = [Phrase("", text) for text in texts]
        texts_read = await self._read(phrases, "")
        return np.concatenate([texts_read[phrase].vectors for phrase in phrases])

    async def _read(self, phrases: Sequence[Phrase], owner: str) -> dict[Phrase, TokenVectors]:
        """The vectors of each different phrase. The tokens of a lead are read with it and left out."""
        import numpy as np

        different = list(dict.fromkeys(phrases))
        leads = await self._tokens({phrase.lead for phrase in different}, owner)
        windows = await self.encoder.windows([f"{lead} {text}" if lead else text for lead, text in different], owner)
        window_vectors = iter(await self._workers.submit([window for text in windows for window in text], owner))
        entries = {}
        for phrase, parts in zip(different, windows, strict=True):
            vectors, before = np.concatenate([next(window_vectors) for _ in parts]), leads[phrase.lead]
            # Copied, because a view would keep the lead as well. What has no token of its own is compared by its lead.
            own = vectors[before:].copy() if len(vectors) > before else vectors
            entries[phrase] = TokenVectors(own, tokens=max(0, _count(parts) - before), windows=len(parts))
        return entries

    def _run(self, items: list[Tokens]) -> list[Any]:
        import torch

        with torch.inference_mode():
            output, _mask = self.encoder.forward(items)
            hidden = torch.nn.functional.normalize(output.last_hidden_state.float(), dim=2).cpu().numpy()
        # Without the tokens of begin and end, unless there are no others.
        return [
            row[1 : len(item) - 1] if len(item) > SPECIAL_TOKENS else row[: len(item)]
            for row, item in zip(hidden, items, strict=True)
        ]


def _key(question: Question) -> str:
    """The same for questions that ask the same."""
    return question.model_dump_json()


def _count(windows: Sequence[Tokens]) -> int:
    return sum(max(0, len(window) - SPECIAL_TOKENS) for window in windows)


def _logprobs(likeness: Similarity) -> tuple[float, ...]:
    """Natural logarithms of probabilities that add up to 1."""
    import numpy as np

    weighed = OPTION_SCALE * np.array(likeness.options) + EXAMPLE_SCALE * np.array(likeness.examples)
    weighed += STATEMENT_SCALE * np.array(likeness.statements)
    weighed -= weighed.max()
    return tuple((weighed - np.log(np.exp(weighed).sum())).tolist())
