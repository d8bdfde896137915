"""A catalogue of engines that behave (`tests.engines`), one manner each."""

from typing import Any, TypeVar

import configs
from contract.catalog import (
    Catalog,
    ChatModel,
    DecisionModel,
    EmbeddingModel,
    Model,
    Operator,
    RerankModel,
    Serving,
    SpeechModel,
    TranscriptionModel,
    VoiceDesignModel,
)
from contract.decisions.questions import Preset

M = TypeVar("M", bound=Model)

REAL = configs.load("embedded")

NO_CPUS = {"ray_actor_options": {"num_cpus": 0}}
"""Engines that behave compute nothing. On two cores they would wait for real ones, which hold all CPUs while awake."""

PRICE = {"input_tokens": 1_000_000, "output_tokens": 2_000_000}
"""1 micro-EUR a token in, 2 out: sums that can be read."""


def run_by(engine: str, runtime: str = "obedient", **serving: Any) -> Serving:
    """An engine of `tests.engines`."""
    return Serving(adapter=f"tests.engines:{engine}", runtime=runtime, **{"deployment": NO_CPUS} | serving)


def chat(model_id: str, engine: str = "ObedientChat", **serving: Any) -> ChatModel:
    """A chat model with a window of 1,000 tokens."""
    return ChatModel(
        id=model_id,
        owned_by="tests",
        tier="default",
        context_window=1000,
        price=PRICE,
        serving=run_by(engine, model_id, **{"load_s": 2} | serving),
    )


def speakers() -> dict[str, SpeechModel]:
    """The real engines with their rules, each run by one that obeys; 1 micro-EUR a character."""
    change = {"serving": run_by("ObedientSpeaker"), "price": {"characters": 1_000_000}}
    return {id: model.model_copy(update=change) for id, model in REAL.speech.items()}


def with_serving(model: M, **change: Any) -> M:
    """The model, run as its stanza says apart from `change`."""
    return model.model_copy(update={"serving": model.setup.model_copy(update=change)})


def obeying(model: M, engine: str, **change: Any) -> M:
    """A model with the manners of its stanza, apart from `change`, and an adapter that obeys."""
    obeys = {"adapter": f"tests.engines:{engine}", "runtime": "obedient", "weights": None}
    return with_serving(model, **obeys | change)


def obedient_speaker(model: SpeechModel) -> SpeechModel:
    """It has one stream."""
    none = {"languages": (), "fallback": None, "by_default": None, "options": {}}
    return obeying(model, "ObedientSpeaker", max_ongoing_requests=1, **none)


def transcribers() -> dict[str, TranscriptionModel]:
    """The real models with their rules, each run by one that obeys; 1 micro-EUR a second."""
    serving = run_by("ObedientTranscriber", options={"lacks_languages": ["yue"]})
    change = {"serving": serving, "price": {"audio_seconds": 1_000_000}, "formatter": "obedient"}
    return {id: model.model_copy(update=change) for id, model in REAL.transcription.items()}


def obedient_transcriber(model: TranscriptionModel) -> TranscriptionModel:
    return obeying(model, "ObedientTranscriber", options={"lacks_languages": ["yue"]}, idle_s=2)


def designers() -> dict[str, VoiceDesignModel]:
    """The real designers with their rules, each run by one that obeys; 1 micro-EUR a millisecond."""
    change = {"serving": run_by("ObedientDesigner"), "price": {"synthesis_ms": 1_000_000}}
    return {id: model.model_copy(update=change) for id, model in REAL.voice_design.items()}


def obedient_designer(model: VoiceDesignModel) -> VoiceDesignModel:
    known = model if model.serving else model.model_copy(update={"serving": run_by("ObedientDesigner", load_s=2)})
    return obeying(known, "ObedientDesigner", options={}, idle_s=2)


def scorer(model_id: str) -> DecisionModel:
    """A decision model that favours the first option; 1 micro-EUR a token, 100 a question."""
    return DecisionModel(
        id=model_id,
        owned_by="tests",
        via="nothing",
        context_window=100,
        price={"input_tokens": 1_000_000, "questions": 100_000_000},
        serving=run_by("SteadyScorer", "steady"),
    )


def embedded() -> Catalog:
    """The catalogue of the profile `embedded`, as its users know it, over engines that obey."""
    obeying = {
        "chat": "ObedientChat",
        "embeddings": "CountingEmbedder",
        "rerank": "LengthReranker",
        "speech": "ObedientSpeaker",
        "transcription": "ObedientTranscriber",
        "voice_design": "ObedientDesigner",
        "decisions": "SteadyScorer",
    }

    def obedient(model: Model) -> Model:
        serving = run_by(obeying[model.noun])
        return model.model_copy(update={"serving": serving}) if model.serving else model

    kinds = {noun: {id: obedient(model) for id, model in getattr(REAL, noun).items()} for noun in obeying}
    return REAL.model_copy(update=kinds)


PRESET = Preset.model_validate(
    {
        "id": "colour-v1",
        "version": "1.2.0",
        "title": "Colour",
        "description": "Of things.",
        "questions": {
            "colour": {"type": "choice", "instructions": "Which colour?", "options": [{"id": "red"}, {"id": "blue"}]}
        },
        "examples": [{"state": "The sky.", "expected": {"colour": "blue"}}],
    }
)


def behaving(**chats: ChatModel) -> Catalog:
    """`chats` beside one engine of each other kind, all of speech, two scorers, and a model that is not set up."""
    absent = chat("absent").model_copy(update={"serving": None})
    embedder = EmbeddingModel(
        id="lengths",
        owned_by="tests",
        dimensions=4,
        context_window=100,
        price=PRICE,
        serving=run_by("CountingEmbedder", "lengths"),
    )
    reranker = RerankModel(
        id="longest", owned_by="tests", context_window=100, price=PRICE, serving=run_by("LengthReranker", "lengths")
    )
    return Catalog(
        profile="embedded",
        operator=Operator(name="tests", country="DE"),
        chat={model.id: model for model in (*chats.values(), absent)},
        embeddings={embedder.id: embedder},
        rerank={reranker.id: reranker},
        speech=speakers(),
        transcription=transcribers(),
        voice_design=designers(),
        voices=REAL.voices,
        sentences=REAL.sentences,
        traits=REAL.traits,
        decisions={model.id: model for model in (scorer("decision-v1"), scorer("decision-v2"))},
        presets={PRESET.id: PRESET},
    )
