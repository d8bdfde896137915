"""How a model is read, by the name that its stanza gives: `options.strategy`.

    labels              any language model; our prompts (`labels.py`). Where the stanza names none
    next-token          vLLM's prompts for Qwen3, Qwen3.5
    liquid              vLLM's prompts for Liquid's decision models (d1), which see
    joint-schema        vLLM's single pass over all questions for Clef-Omni, which sees
    diffusion-canvas    vLLM's one denoising step for DiffusionGemma

All but the first are vLLM's own code, made for models that were trained to be read so. It puts prompts together as
text, so what clients send is made harmless before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contract.catalog import DecisionModel
from contract.decisions.engine import DecisionJob, Reading
from contract.decisions.questions import BinaryQuestion, ChoiceQuestion, Question
from contract.errors import INVALID_REQUEST, REQUEST_TOO_LARGE
from models.decisions.labels import LabelReads
from models.decisions.prompts import wording
from models.decisions.reading import ReadRequest, ReadResult, ReadStrategy
from models.llm.plain_text import PlainText

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

OURS = "labels"
OF_VLLM = {
    "next-token": "NextTokenStrategy",
    "liquid": "LiquidStrategy",
    "joint-schema": "JointSchemaStrategy",
    "diffusion-canvas": "DiffusionGemmaCanvasStrategy",
}
"""Our name to vLLM's class."""
NAMES = (OURS, *OF_VLLM)
SEEING = frozenset({OURS, "liquid", "joint-schema"})
"""Strategies that take images."""


class StrategyError(Exception):
    """A stanza names a strategy that cannot read its weights."""


def start(name: str, engine: AsyncLLM, model: DecisionModel) -> ReadStrategy:
    """The strategy `name` over a running engine. Raises StrategyError or LabelError where the model does not fit."""
    return LabelReads(engine, model) if name == OURS else VllmReads(name, engine, model)


class VllmReads:
    """A strategy of vLLM's `/v1/systemone`, with our questions and our answers."""

    def __init__(self, name: str, engine: AsyncLLM, model: DecisionModel) -> None:
        from vllm.entrypoints.generate.structured_decisions import strategies
        from vllm.renderers.online_renderer import OnlineRenderer

        architecture = engine.model_config.architecture
        fitting = strategies.READ_STRATEGIES.get(architecture)
        if fitting is None or fitting.__name__ != OF_VLLM[name]:
            fits = next((ours for ours, theirs in OF_VLLM.items() if fitting and theirs == fitting.__name__), OURS)
            raise StrategyError(f"the strategy `{name}` cannot read `{architecture}`; `{fits}` can")
        self._model = model
        self._plain = PlainText(engine.renderer.get_tokenizer())
        how: dict[str, Any] = {"chat_template": None, "chat_template_content_format": "auto"}
        renderer = OnlineRenderer(engine.model_config, engine.renderer, request_logger=None, **how)
        self._strategy = _decoded(fitting)(
            strategies.ReadContext(engine, renderer, default_chat_template_kwargs={}, **how)
        )

    async def read(self, request: ReadRequest) -> ReadResult:
        """One read for each question. All have the same `inference_s`, because vLLM reads them together."""
        from vllm.entrypoints.generate.structured_decisions.question_types import StructuredDecisionError
        from vllm.exceptions import VLLMValidationError

        job = request.job
        started = time.perf_counter()
        try:
            reads = await self._strategy.read(
                [self._question(index, question) for index, question in enumerate(job.questions)],
                None,
                self._plain.spoken(job.state),
                request_id=request.request_id,
                chat_template_kwargs=None,
                lora_request=None,
                priority=0,
                cache_salt=job.owner or None,
                media={"image": request.images} if request.images else None,
            )
        except TooLong:
            raise self._too_large() from None
        except StructuredDecisionError as error:
            raise INVALID_REQUEST(f"model `{self._model.id}` cannot read this: {error}") from None
        except VLLMValidationError as error:
            if error.parameter != "input_tokens":
                raise
            raise self._too_large() from None
        spent_s = time.perf_counter() - started
        found = tuple(Reading(_logprobs(read.probs, read.label_mass), spent_s) for read in reads)
        return ReadResult(found, self._tokens(job))

    def _question(self, index: int, question: Question) -> Any:
        """Our question as one of vLLM's. Its names are not in the request any more, so it has its number."""
        from vllm.entrypoints.generate.structured_decisions.question_types import build_question

        said = self._plain.spoken
        kind = "score"
        criteria: dict[str, str | None] | list[str]
        if isinstance(question, ChoiceQuestion):
            kind = "choice"
            criteria = {said(o.id): o.description and said(o.description) for o in question.options}
        elif isinstance(question, BinaryQuestion):
            kind = "noul"
            criteria = {"true": said(question.true_description), "false": said(question.false_description)}
        else:
            criteria = [said(level) for level in question.levels]
        return build_question(f"{index + 1}", kind, said(question.instructions), criteria, len(question.labels))

    def _tokens(self, job: DecisionJob) -> int:
        """As the strategy `labels` counts them, but for images."""
        texts = [job.state, *map(wording, job.questions)]
        return sum(len(self._plain.ids(text)) for text in texts)

    def _too_large(self) -> Exception:
        return REQUEST_TOO_LARGE(
            f"state and question are longer than the {self._model.context_window} tokens of model `{self._model.id}`"
        )


class TooLong(Exception):
    """vLLM would have cut the state in silence."""


class Decoded:
    """Stands where vLLM would fetch images: ours are here, and were checked."""

    async def fetch_image_async(self, image: Any) -> Any:
        return image

    async def fetch_audio_async(self, address: Any) -> Any:
        """Never called: vLLM names this method also where there is no audio."""
        raise ValueError("decisions take no audio")


def _decoded(fitting: type) -> type:
    """The class of vLLM without its way to the network, and without its silent cut of a state."""

    class Reads(fitting):  # type: ignore[misc]
        _connector = Decoded()

        def encode(self, *arguments: Any, **named: Any) -> Any:
            """The prompt of the joint schema: as vLLM's, or TooLong."""
            encoded = super().encode(*arguments, **named)
            if len(encoded[0]) >= self.max_length:
                raise TooLong
            return encoded

    return Reads


def _logprobs(probabilities: Sequence[float], label_mass: float) -> tuple[float | None, ...]:
    """Log-probabilities over the whole vocabulary from those over the labels."""
    return tuple(math.log(p * label_mass) if p * label_mass > 0 else None for p in probabilities)
