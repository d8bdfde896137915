"""Typed handles for researchers, from any Python process on a machine of the cluster, notebooks among them.

    from graph import connect
    g = connect()
    g.chat["qwen2.5-coder-0.5b-instruct"].complete("Name the capital of France.").text
    for batch in g.chat["qwen2.5-coder-0.5b-instruct"].stream("Write a story."): ...
    g.embeddings["all-minilm-l6-v2"].embed(["one text", "another"])        # numpy float32 [2, 384]
    g.rerank["all-minilm-l6-v2-cosine"].rerank("a query", ["a document", "another"])
    g.speech["supertonic-3"].speak("Good morning.", "en", "F1")            # bytes of a WAV file
    g.transcription["whisper-large-v3"].transcribe(Path("memo.m4a")).text
    g.voice_design["qwen3-tts"].design("f", age_years=34, language="en", timbre="bright").f0_hz
    g.decisions["decision-v1"].decide("a text", "sentiment-v1")

They wake an engine that is at zero and wait for it. No key, limit or bill applies: access to the cluster is
access to all of it.
handles.py        what chat, embedding, rerank and decision models can be asked
sound_handles.py  likewise, of what speaks and listens
calls.py          how an answer is waited for, awaited, or iterated over
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from autoscaling.ray_internals.start import join
from contract.catalog import Catalog
from deployments.client.calls import Call
from deployments.client.handles import ChatHandle, DecisionsHandle, EmbedderHandle, RerankerHandle
from deployments.client.sound_handles import SpeechHandle, TranscriptionHandle, VoiceDesignHandle

APP_NAME = "parlance"
"""Serve application of the graph."""

H = TypeVar("H")


class Handles(dict[str, H]):
    """Handles by model id; the error for a missing one lists those that exist."""

    def __missing__(self, id: str) -> H:
        raise KeyError(f"no model `{id}` of this kind is set up; choose one of: {', '.join(self) or 'none'}")

    def __repr__(self) -> str:
        return repr([*self])


@dataclass(frozen=True, slots=True)
class Connection:
    """The engines of a running graph, by model id."""

    catalog: Catalog = field(repr=False)
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
        join(address)
    listed: Call[Catalog] = Call(serve.get_app_handle(app_name).catalog.remote())
    return connection(listed.result(), lambda deployment: serve.get_deployment_handle(deployment, app_name))


def connection(catalog: Catalog, handle_of: Callable[[str], DeploymentHandle]) -> Connection:
    """Typed handles to the models of `catalog` that are set up, over those that `handle_of` a deployment gives."""

    def handles(kind: Any, models: Mapping[str, Any]) -> Handles[Any]:
        return Handles({m.id: kind(m, handle_of(m.deployment), catalog) for m in models.values() if m.serving})

    return Connection(
        catalog,
        handles(ChatHandle, catalog.chat),
        handles(EmbedderHandle, catalog.embeddings),
        handles(RerankerHandle, catalog.rerank),
        handles(SpeechHandle, catalog.speech),
        handles(TranscriptionHandle, catalog.transcription),
        handles(VoiceDesignHandle, catalog.voice_design),
        handles(DecisionsHandle, catalog.decisions),
    )
