"""Typed handles for researchers, from any Python process on a machine of the cluster.

    from graph import connect
    g = connect()
    g.chat["smollm2-135m-instruct"].complete("What is the capital of France?").body
    for batch in g.chat["smollm2-135m-instruct"].stream("Tell me a story."): ...
    g.embeddings["all-minilm-l6-v2"].embed(["one text", "another"])        # numpy float32 [2, 384]
    g.rerank["all-minilm-l6-v2-cosine"].rerank("a query", ["a document", "another"])
    g.speech["supertonic-3"].speak("Good morning.", "en", voice="F1")      # bytes of a WAV file
    g.transcription["whisper-large-v3"].transcribe(Path("memo.m4a")).text
    g.voice_design["qwen3-tts"].design("f", age_years=34, language="en", timbre="bright").f0_hz
    g.decisions["decision-v1"].decide("a text", {"praise": {"type": "binary", "instructions": "Is this praise?", ...}})

Calls block; they wake an engine that is at zero and wait for it. No key, limit or bill stands in the way: whoever
reaches the cluster owns it. `.handle` is Serve's own `DeploymentHandle`, for asynchronous code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from contract.catalog import (
    Catalog,
    ChatModel,
    DecisionModel,
    EmbeddingModel,
    RerankModel,
    SpeechModel,
    TranscriptionModel,
    VoiceDesignModel,
)
from contract.chat.engine import ChatBatch, ChatJob, ChatReply
from contract.chat.request import ChatRequest
from contract.decisions.answers import Answer, answers
from contract.decisions.engine import DecisionJob, Readings
from contract.decisions.native import DecisionRequest
from contract.decisions.policy import Policy
from contract.decisions.questions import State
from contract.embeddings import Embeddings, EmbeddingsJob
from contract.rerank import Ranking, RerankJob
from contract.speech.engine import AudioBlock, SpeechJob
from contract.transcription.engine import Heard
from contract.transcription.request import Plan, TranscriptionRequest, plan
from contract.transcription.transcript import Transcript
from contract.voice_design.engine import Designed
from contract.voice_design.order import DesignOrder
from contract.voice_design.order import plan as plan_voice
from contract.voice_design.traits import Gender

if TYPE_CHECKING:
    import numpy as np

APP_NAME = "parlance"
"""Serve application of the graph."""


@dataclass(frozen=True, slots=True)
class ChatHandle:
    """An LLM. A question may be a string, a list of messages, or a whole `ChatRequest`."""

    model: ChatModel
    handle: DeploymentHandle

    def complete(self, question: str | list[dict[str, Any]] | ChatRequest, **fields: Any) -> ChatReply:
        """The answer; `.body` is a `chat.completion`. `fields` are those of the API, e.g. `max_tokens=64`."""
        reply: ChatReply = self.handle.complete.remote(self._job(question, fields)).result()
        return reply

    def stream(self, question: str | list[dict[str, Any]] | ChatRequest, **fields: Any) -> Iterator[ChatBatch]:
        """The answer as it is made: groups of server-sent events with the token counts so far."""
        streaming = self.handle.options(stream=True)
        yield from streaming.stream.remote(self._job(question, fields | {"stream": True}))

    def _job(self, question: str | list[dict[str, Any]] | ChatRequest, fields: dict[str, Any]) -> ChatJob:
        if isinstance(question, ChatRequest):
            return ChatJob(question.model_copy(update=fields))
        messages = [{"role": "user", "content": question}] if isinstance(question, str) else question
        return ChatJob(ChatRequest.model_validate({"model": self.model.id, "messages": messages, **fields}))


@dataclass(frozen=True, slots=True)
class EmbedderHandle:
    """An embedding model."""

    model: EmbeddingModel
    handle: DeploymentHandle

    def embed(self, texts: Sequence[str], **fields: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Unit vectors, float32 [n, dimensions]. `fields` are those of `EmbeddingsJob`: `dimensions`."""
        import numpy as np

        result: Embeddings = self.handle.embed.remote(EmbeddingsJob(tuple(texts), **fields)).result()
        return np.frombuffer(result.vectors, "<f4").reshape(len(texts), result.dimensions)


@dataclass(frozen=True, slots=True)
class RerankerHandle:
    """A rerank model."""

    model: RerankModel
    handle: DeploymentHandle

    def rerank(self, query: str, documents: Sequence[str], **fields: Any) -> Ranking:
        """One score per document, in order; higher is more relevant. `fields` are those of `RerankJob`."""
        ranking: Ranking = self.handle.rerank.remote(RerankJob(query, tuple(documents), **fields)).result()
        return ranking


@dataclass(frozen=True, slots=True)
class SpeechHandle:
    """A speech engine."""

    model: SpeechModel
    handle: DeploymentHandle

    def speak(self, text: str, language: str, **fields: Any) -> bytes:
        """An audio file. `fields` are those of `SpeechJob`: `voice`, `clip`, `style`, `speed`, `format`."""
        block: AudioBlock = self.handle.speak_whole.remote(self._job(text, language, fields)).result()
        return block.data

    def stream(self, text: str, language: str, **fields: Any) -> Iterator[AudioBlock]:
        """The file as it is made."""
        yield from self.handle.options(stream=True).speak.remote(self._job(text, language, fields))

    def _job(self, text: str, language: str, fields: dict[str, Any]) -> SpeechJob:
        fields = {"voice": None if "clip" in fields else self.model.default_voice, **fields}
        return SpeechJob(text, language, **{"format": self.model.formats[0], **fields})


@dataclass(frozen=True, slots=True)
class TranscriptionHandle:
    """A transcriber. A recording is the bytes of a file, or a path that the replica can read."""

    model: TranscriptionModel
    handle: DeploymentHandle

    def transcribe(self, recording: bytes | Path, **fields: Any) -> Transcript:
        """What is said: `.text`, `.segments`, `.language`. `fields` are those of the API, e.g. `language="de"`."""
        transcript = Transcript(self._plan(fields))
        for heard in self._heard(transcript.plan, recording):
            transcript.add(heard)
        return transcript

    def stream(self, recording: bytes | Path, **fields: Any) -> Iterator[Heard]:
        """Segments as they are heard; the first part has none and says how long the recording is."""
        yield from self._heard(self._plan(fields), recording)

    def _heard(self, plan: Plan, recording: bytes | Path) -> Iterator[Heard]:
        audio = recording if isinstance(recording, bytes) else recording.resolve().as_uri()
        yield from self.handle.options(stream=True).transcribe.remote(plan.job(audio))

    def _plan(self, fields: dict[str, Any]) -> Plan:
        return plan(TranscriptionRequest.model_validate(fields), self.model)


@dataclass(frozen=True, slots=True)
class VoiceDesignHandle:
    """A designer of voices."""

    model: VoiceDesignModel
    handle: DeploymentHandle
    catalog: Catalog

    def design(self, gender: Gender, seed: int | None = None, **fields: Any) -> Designed:
        """A voice: `.clip`, `.f0_hz`, `.in_band`; it is kept nowhere.

        `fields` are those of an order in the API, e.g. `age_years=34` and `target_hz=190`. What they leave open is
        drawn by chance; the same `seed` draws the same.
        """
        order = DesignOrder.model_validate({"gender": gender, **fields})
        planned = plan_voice(order, self.catalog.traits, self.model, Random(seed))
        job = planned.job(self.catalog.sentences[planned.language], self.model.max_attempts)
        designed: Designed = self.handle.design.remote(job).result()
        return designed


@dataclass(frozen=True, slots=True)
class DecisionsHandle:
    """A decision model."""

    model: DecisionModel
    handle: DeploymentHandle

    def decide(
        self, state: State, questions: Mapping[str, Any], policy: Policy | None = None, **fields: Any
    ) -> dict[str, Answer]:
        """Answers by the name of their question, as in the API. `questions` are those of the API, as dictionaries.

        `fields` are those of `DecisionJob`: `images`.
        """
        decision = DecisionRequest.model_validate({"state": state, "questions": dict(questions)}).decision()
        job = DecisionJob(decision.state, tuple(decision.questions.values()), **fields)
        readings: Readings = self.handle.decide.remote(job).result()
        return answers(decision.questions, readings, policy or decision.policy)


@dataclass(frozen=True, slots=True)
class Connection:
    """The engines of a running graph, by model id."""

    catalog: Catalog
    chat: Mapping[str, ChatHandle]
    embeddings: Mapping[str, EmbedderHandle]
    rerank: Mapping[str, RerankerHandle]
    speech: Mapping[str, SpeechHandle]
    transcription: Mapping[str, TranscriptionHandle]
    voice_design: Mapping[str, VoiceDesignHandle]
    decisions: Mapping[str, DecisionsHandle]


def connect(address: str = "auto", app_name: str = APP_NAME) -> Connection:
    """Handles to every engine of the graph that runs at `address`. Connects this process to Ray if it is not yet."""
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    catalog: Catalog = serve.get_app_handle(app_name).catalog.remote().result()
    return connection(catalog, lambda deployment: serve.get_deployment_handle(deployment, app_name))


def connection(catalog: Catalog, handle_of: Callable[[str], DeploymentHandle]) -> Connection:
    """Typed handles to the models of `catalog` that are set up, over those that `handle_of` a deployment gives."""

    def handles(kind: Any, models: Mapping[str, Any], *arguments: Any) -> dict[str, Any]:
        return {m.id: kind(m, handle_of(m.deployment), *arguments) for m in models.values() if m.serving}

    return Connection(
        catalog,
        handles(ChatHandle, catalog.chat),
        handles(EmbedderHandle, catalog.embeddings),
        handles(RerankerHandle, catalog.rerank),
        handles(SpeechHandle, catalog.speech),
        handles(TranscriptionHandle, catalog.transcription),
        handles(VoiceDesignHandle, catalog.voice_design, catalog),
        handles(DecisionsHandle, catalog.decisions),
    )
