"""LabelScorer: a decision model behind three calls. vLLM is imported when one is constructed, not before."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from contract.catalog import ChatModel, DecisionModel
from contract.decision_answers import Reading, Readings
from contract.decision_runtimes import Measurement
from contract.decisions import Preset, Question, state_text
from contract.errors import IMAGES_UNSUPPORTED, REQUEST_TOO_LARGE, RUNTIME_UNAVAILABLE, UPSTREAM_ERROR
from models import weights
from models.decisions import measuring
from models.decisions.prompts import PROMPT_VERSION, Prompt, PromptBook
from models.weight_files import Digests, pin_all

log = logging.getLogger("parlance.decisions")

OURS = frozenset({"calibrated", "images"})
"""Options of a stanza that are not engine arguments of vLLM."""


class LabelScorer:
    """A language model that is read at the first token of its answer. Answers once it is measured.

    Args:
        model: stanza; `serving.options` are engine arguments of vLLM, `calibrated` fits a temperature.
        path: folder of the weights.
    """

    def __init__(self, model: DecisionModel, path: Path) -> None:
        from models.chat import engine

        assert model.serving is not None
        self._model = model
        self._path = path
        self._options = {name: value for name, value in model.serving.options.items() if name not in OURS}
        self._calibrated = bool(model.serving.options.get("calibrated"))
        self._engine = engine.start(_as_chat(model, self._options), path)
        block_tokens = self._engine.vllm_config.cache_config.block_size
        self._book = PromptBook(self._engine.renderer.get_tokenizer(), block_tokens)
        self._numbers = itertools.count()
        self._measured: Measurement | None = None

    async def measure(self, presets: Iterable[Preset]) -> Measurement:
        """Reads the presets' examples, unless an earlier start has with the same weights and wording."""
        presets = list(presets)
        folder = weights.home_folder() / "measurements"
        wanted = await asyncio.to_thread(self._fingerprint, presets)
        kept = measuring.recall(folder, wanted)
        if kept is None:
            kept = measuring.measurement(
                await self._labelled(presets),
                calibrated=self._calibrated,
                fingerprint=wanted,
                prompt_version=PROMPT_VERSION,
            )
            measuring.keep(folder, kept)
            log.info("%s measured: accuracy %.2f, label mass %.2f", self._model.id, kept.accuracy, kept.label_mass)
        self._measured = kept
        return kept

    async def measured(self) -> Measurement | None:
        """The measurement, once there is one."""
        return self._measured

    async def decide(
        self, state: str, questions: Sequence[Question], images: Sequence[str] = (), cache_salt: str | None = None
    ) -> Readings:
        """Reads every question about `state`, in order.

        Args:
            state: the text that is judged.
            questions: 1 to 16.
            images: `data:` addresses; refused, because no strategy here reads them.
            cache_salt: keeps the prefix caches of organisations apart.

        Raises:
            ApiError: RUNTIME_UNAVAILABLE before a measurement, IMAGES_UNSUPPORTED, REQUEST_TOO_LARGE if the model's
                window is too small, UPSTREAM_ERROR if the engine fails.
        """
        if self._measured is None:
            raise RUNTIME_UNAVAILABLE()
        if images:
            raise IMAGES_UNSUPPORTED(f"model `{self._model.id}` reads no images here", param="images")
        return await self._read(state, questions, cache_salt, self._measured.temperature)

    async def check_health(self) -> None:
        """Raises if the engine has died, or has work and does not get on with it."""
        await self._engine.check_health()

    def close(self) -> None:
        """Ends the engine; requests in flight fail with 502."""
        self._engine.shutdown()

    async def _read(
        self, state: str, questions: Sequence[Question], cache_salt: str | None, temperature: float
    ) -> Readings:
        batch = self._book.batch(state, questions)
        longest = max(len(prompt.token_ids) for prompt in batch.prompts)
        if longest >= self._model.context_window:
            raise REQUEST_TOO_LARGE(
                f"state and question have {longest} tokens; model `{self._model.id}` reads {self._model.context_window}"
            )
        try:
            reads = await asyncio.gather(*(self._read_one(prompt, cache_salt) for prompt in batch.prompts))
        except Exception as failure:
            # vLLM's texts may quote the prompt, which must not get into a log.
            log.error("a read of %s failed: %s", self._model.id, type(failure).__name__)
            raise UPSTREAM_ERROR() from None
        return Readings(tuple(reads), batch.input_tokens, temperature)

    async def _read_one(self, prompt: Prompt, cache_salt: str | None) -> Reading:
        from vllm.entrypoints.generate.label_reads import next_token_label_reads
        from vllm.inputs import tokens_input
        from vllm.sampling_params import SamplingParams

        params = SamplingParams(max_tokens=1, temperature=0, logprob_token_ids=prompt.label_ids, detokenize=False)
        started = time.perf_counter()
        (read,) = await next_token_label_reads(
            self._engine,
            [tokens_input(prompt.token_ids, cache_salt=cache_salt)],
            [params],
            f"decision-{next(self._numbers)}",
        )
        return Reading(tuple(read.logprobs), time.perf_counter() - started)

    async def _labelled(self, presets: Iterable[Preset]) -> list[measuring.Labelled]:
        """One state after the other, as requests would come."""
        labelled = []
        for preset in presets:
            for example in preset.examples:
                questions = list(preset.questions.values())
                found = await self._read(state_text(example.state), questions, None, 1.0)
                for name, reading in zip(preset.questions, found.reads, strict=True):
                    expected = preset.expected_index(name, example.expected[name])
                    labelled.append(measuring.Labelled(reading, expected))
        return labelled

    def _fingerprint(self, presets: Sequence[Preset]) -> str:
        serving = self._model.serving
        assert serving is not None
        digests = Digests(weights.home_folder() / "weights" / ".digests" / f"{serving.weights}.json")
        files = {name: pin.sha256 for name, pin in pin_all(self._path, digests).items()}
        packs: list[Any] = [preset.model_dump() for preset in presets]
        return measuring.fingerprint(files, PROMPT_VERSION, self._options, self._calibrated, packs)


def _as_chat(model: DecisionModel, options: dict[str, Any]) -> ChatModel:
    """The same weights as the chat engine's starter takes them."""
    assert model.serving is not None
    return ChatModel(
        id=model.id,
        owned_by=model.owned_by,
        tier="default",
        context_window=model.context_window,
        serving=model.serving.model_copy(update={"options": options}),
    )
