"""Engines that answer at once: what is around them is measured. Nothing of a request is looked at."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

from contract.catalog import ChatModel
from contract.chat.engine import ChatBatch, ChatCompletion, ChatJob, ChatReply
from contract.chat.usage import usage_of

MODEL = "obedient"
EVENTS = 50
WORDS = "word " * 100
COMPLETION: ChatCompletion = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": MODEL,
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": WORDS}, "finish_reason": "stop", "logprobs": None}
    ],
    "usage": usage_of(7, 3),
}


class InstantChat:
    def __init__(self, model: ChatModel, path: Path | None) -> None:
        self.model = model

    async def complete(self, job: ChatJob) -> ChatReply:
        return ChatReply(COMPLETION, 7, 3)

    async def stream(self, job: ChatJob) -> AsyncGenerator[ChatBatch, None]:
        for index in range(EVENTS):
            yield ChatBatch(event(index), 7, index + 1)
            # Events leave one at a time, as those of an engine that computes between them.
            await asyncio.sleep(0)

    async def check_health(self) -> None:
        """Always well."""

    def close(self) -> None:
        """Nothing to let go."""


def event(index: int) -> bytes:
    delta = {"index": 0, "delta": {"role": "assistant", "content": f"{index} "}, "finish_reason": None}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [delta]}
    return f"data: {json.dumps(chunk)}\n\n".encode()
