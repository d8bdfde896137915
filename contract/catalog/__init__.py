"""The catalogue: every model that the API knows, as its stanza in `configs/catalog/<noun>.toml` says.

base.py             what a stanza of every kind may say, and the table of a profile
chat.py             an LLM, and how it is told to think
encoders.py         embeddings, rerankers, decision scorers
speech.py           speech engines, and designers of their voices
transcription.py    speech to text

A stanza holds public facts, true wherever the model runs, and one `[<id>.serving.<profile>]` table per profile that
deploys it. The loader (`configs.load`) picks the table of the profile; `serving is None` means known, but not deployed.
"""

from __future__ import annotations

from collections.abc import Iterator

from contract.base import Frozen
from contract.catalog.base import FallbackRuntime, Model, ModelId, Serving
from contract.catalog.chat import ChatModel, FillInMiddle, ThinkingOptions
from contract.catalog.encoders import DecisionModel, EmbeddingModel, EncoderModel, InputType, RerankModel
from contract.catalog.speech import AudioFormat, SpeechModel, VoiceDesignModel
from contract.catalog.transcription import TranscriptionModel
from contract.decisions.presets import Preset
from contract.operator import Operator
from contract.speech.voices import Voice, VoiceAlias
from contract.voice_design.traits import Traits

__all__ = [
    "CATALOG_TYPES",
    "AudioFormat",
    "Catalog",
    "ChatModel",
    "DecisionModel",
    "EmbeddingModel",
    "EncoderModel",
    "FallbackRuntime",
    "FillInMiddle",
    "InputType",
    "Model",
    "ModelId",
    "RerankModel",
    "Serving",
    "SpeechModel",
    "ThinkingOptions",
    "TranscriptionModel",
    "VoiceDesignModel",
]


class Catalog(Frozen):
    """All models that the API knows, by kind and id, in the order of their files.

    `operator` says who runs them. Beside them come presets by id, voices and their aliases by slug, the sentence of
    samples by language, and traits of voices to design.
    """

    profile: str
    operator: Operator = Operator()
    chat: dict[ModelId, ChatModel] = {}
    embeddings: dict[ModelId, EmbeddingModel] = {}
    rerank: dict[ModelId, RerankModel] = {}
    speech: dict[ModelId, SpeechModel] = {}
    transcription: dict[ModelId, TranscriptionModel] = {}
    voice_design: dict[ModelId, VoiceDesignModel] = {}
    decisions: dict[ModelId, DecisionModel] = {}
    presets: dict[str, Preset] = {}
    voices: dict[str, Voice] = {}
    voice_aliases: dict[str, VoiceAlias] = {}
    sentences: dict[str, str] = {}
    traits: Traits = Traits()

    def models(self) -> Iterator[Model]:
        """Every model, set up or not."""
        for noun in CATALOG_TYPES:
            yield from getattr(self, noun).values()

    @property
    def spoken_languages(self) -> frozenset[str]:
        """ISO 639-1 codes of every language that at least one speech engine knows."""
        return frozenset(language for model in self.speech.values() for language in model.languages)

    def read_through(self, model: Model) -> ChatModel | None:
        """The chat model whose replicas read for `model`; None where it has an engine of its own."""
        id = model.serving.reads_through if model.serving else None
        return self.chat.get(id) if id is not None else None

    def deployed(self) -> Iterator[Model]:
        """The models that this profile runs."""
        return (model for model in self.models() if model.serving)


CATALOG_TYPES: dict[str, type[Model]] = {
    t.noun: t
    for t in (
        ChatModel,
        EmbeddingModel,
        RerankModel,
        SpeechModel,
        TranscriptionModel,
        VoiceDesignModel,
        DecisionModel,
    )
}
"""Noun to type: the file `configs/catalog/<noun>.toml` holds stanzas of this type."""
