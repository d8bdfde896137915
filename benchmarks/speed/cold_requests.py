"""The first answer of each capability, as its client sees it: seconds from the request to the first thing of use."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvloop

from benchmarks.servers import Server
from benchmarks.speed.chat import send
from benchmarks.speed.peers import MODEL
from contract.speech.engine import Clip
from deployments.ingress.verifier import wav

AGAIN_S = 0.1
ANSWERED_WITHIN_S = 300


@dataclass(frozen=True, slots=True)
class First:
    """A request for a first answer. A stream's first piece of sound counts, for chat its first token.

    Attributes:
        deployment: what must be at zero.
        path, body: the request, in JSON; `files` makes a form of it.
    """

    deployment: str
    path: str
    body: dict[str, Any] = field(default_factory=dict)
    files: Mapping[str, Any] | None = None

    def answered_s(self, server: Server) -> float:
        """Seconds to the first answer. What an engine refuses while it warms up is asked again and again.

        Raises httpx.HTTPStatusError.
        """
        if self.path.endswith("/chat/completions"):
            return uvloop.run(send(server, 1, max_tokens=2)).ttft_ms[0] / 1000
        form = {"data": self.body, "files": self.files} if self.files else {"json": self.body}
        started_s = time.perf_counter()
        with httpx.Client(timeout=ANSWERED_WITHIN_S, headers=server.headers) as client:
            while True:
                with client.stream("POST", f"{server.url}/v1{self.path}", **form) as reply:
                    late = time.perf_counter() - started_s > ANSWERED_WITHIN_S
                    if late or reply.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                        reply.raise_for_status()
                        next(reply.iter_bytes())
                        return time.perf_counter() - started_s
                time.sleep(AGAIN_S)


def recording(seconds: int = 3) -> bytes:
    """A WAV file of silence: what is measured is the way to the answer."""
    return wav(Clip(bytes(2 * 16_000 * seconds), 16_000))


PRAISE = {
    "type": "binary",
    "instructions": "Is this praise?",
    "true_description": "praise",
    "false_description": "blame",
}

CAPABILITIES: dict[str, First] = {
    "chat": First(f"chat-{MODEL}", "/chat/completions"),
    **{
        f"decisions, by {way}": First(
            f"decisions-{model}",
            "/decisions",
            {"model": model, "state": "It was lovely.", "questions": {"praise": PRAISE}},
        )
        for way, model in (("a language model", "decision-v2"), ("similarity", "decision-v1"))
    },
    "embeddings": First("embeddings-all-minilm-l6-v2", "/embeddings", {"model": "all-minilm-l6-v2", "input": "Hello."}),
    "rerank": First(
        "rerank-all-minilm-l6-v2-cosine",
        "/rerank",
        {"model": "all-minilm-l6-v2-cosine", "query": "Hello?", "documents": ["Hello.", "Goodbye."]},
    ),
    "speech": First(
        "speech-supertonic-3", "/audio/speech", {"model": "supertonic-3", "input": "Hello.", "language": "en"}
    ),
    "transcription": First(
        "transcription-whisper-large-v3",
        "/audio/transcriptions",
        {"model": "whisper-large-v3", "language": "en"},
        {"file": ("a.wav", recording(), "audio/wav")},
    ),
}
"""Of the embedded profile. What is slow to one is not slow to another, so each is its own row."""
