"""LabelScorer: a decision model behind three calls. vLLM is imported when one is constructed, not before."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from contract.catalog import ChatModel, DecisionModel, Serving
from contract.decisions.engine import Measurement, Readings
from contract.decisions.presets import Preset
from contract.decisions.questions import Question, state_text
from contract.errors import IMAGES_UNSUPPORTED, RUNTIME_UNAVAILABLE, UPSTREAM_ERROR, ApiError
from contract.limits import DECISION_IMAGES
from models.decisions import measuring, strategies
from models.decisions.images import Pictures
from models.decisions.prompts import PROMPT_VERSION
from models.decisions.reading import Asked
from models.llm import head
from models.llm.exact import exactly
from models.weights import store as weights
from models.weights.files import Digests, pin_all

log = logging.getLogger("parlance.decisions")

OURS = frozenset({"calibrated", "images", "strategy", "exact"})
"""Options of a stanza that are not engine arguments of vLLM."""
FOR_IMAGES: dict[str, Any] = {"limit_mm_per_prompt": {"image": DECISION_IMAGES}, "mm_processor_cache_gb": 0}
"""Engine arguments of a model that sees, where its stanza says nothing. No image of a client is kept."""


class LabelScorer:
    """A model that is read for how likely it finds each allowed answer. Answers once it is measured.

    Args:
        model: stanza; `serving.options` are engine arguments of vLLM, `calibrated` fits a temperature, `strategy` says
            how the model is read (`strategies.py`), `images` that it sees, `exact` that nothing else may move what it
            reads (`exact.py`).
        path: folder of the weights.

    Raises:
        StrategyError: an unknown strategy, or one that does not fit the weights.
    """

    def __init__(self, model: DecisionModel, path: Path) -> None:
        from models.llm import engine

        assert model.serving is not None
        strategy = strategies.chosen(model)
        self._model = model
        self._path = path
        self._options = {name: value for name, value in model.serving.options.items() if name not in OURS}
        if model.reads_images:
            self._options = FOR_IMAGES | self._options
        self._calibrated = bool(model.serving.options.get("calibrated"))
        serving = model.serving.model_copy(update={"options": self._options})
        if model.serving.options.get("exact"):
            serving = exactly(serving)
        self._engine = engine.start(_as_chat(model, serving), path)
        head.keep(self._engine)
        self._strategy = strategies.start(strategy, self._engine, model)
        self._strategy_name = strategy
        self._pictures = Pictures()
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
            images: up to two `data:` addresses, for a model that sees.
            cache_salt: keeps the prefix caches of organisations apart.

        Raises:
            ApiError: RUNTIME_UNAVAILABLE before a measurement, IMAGES_UNSUPPORTED, INVALID_REQUEST for an image that
                cannot be read, REQUEST_TOO_LARGE if the model's window is too small, UPSTREAM_ERROR if the engine
                fails.
        """
        if self._measured is None:
            raise RUNTIME_UNAVAILABLE()
        if images and not self._model.reads_images:
            raise IMAGES_UNSUPPORTED(f"model `{self._model.id}` reads no images here", param="images")
        return await self._read(state, questions, images, cache_salt, self._measured.temperature)

    async def check_health(self) -> None:
        """Raises if the engine has died, or has work and does not get on with it."""
        await self._engine.check_health()

    def close(self) -> None:
        """Ends the engine; requests in flight fail with 502."""
        self._engine.shutdown()

    async def _read(
        self,
        state: str,
        questions: Sequence[Question],
        images: Sequence[str],
        cache_salt: str | None,
        temperature: float,
    ) -> Readings:
        pictures = await self._pictures.decode(images) if images else []
        request_id = f"decision-{next(self._numbers)}"
        try:
            found = await self._strategy.read(Asked(state, questions, pictures, request_id, cache_salt))
        except ApiError:
            raise
        except Exception as failure:
            # vLLM's texts may quote the prompt, which must not get into a log.
            log.error("a read of %s failed: %s", self._model.id, type(failure).__name__)
            raise UPSTREAM_ERROR() from None
        return Readings(found.reads, found.input_tokens, temperature)

    async def _labelled(self, presets: Iterable[Preset]) -> list[measuring.Labelled]:
        """One state after the other, as requests would come."""
        labelled = []
        for preset in presets:
            for example in preset.examples:
                questions = list(preset.questions.values())
                found = await self._read(state_text(example.state), questions, (), None, 1.0)
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
        how = (PROMPT_VERSION, self._strategy_name)
        return measuring.fingerprint(files, how, self._options, self._calibrated, packs)


def _as_chat(model: DecisionModel, serving: Serving) -> ChatModel:
    """The same weights as the chat engine's starter takes them."""
    return ChatModel(
        id=model.id,
        owned_by=model.owned_by,
        tier="default",
        context_window=model.context_window,
        serving=serving,
    )
