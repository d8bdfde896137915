"""What official SDKs demand of replies and of events: every field that they require, each of its type."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from openai.types.chat import ChatCompletionChunk
from openai.types.completion import Completion
from pydantic import TypeAdapter

adapter = cache(TypeAdapter)


def demand(kind: Any, content: Any) -> Any:
    """`content` as the SDK's `kind`. Fails where a field is missing, or of a type that would have to be converted."""
    return adapter(kind).validate_json(json.dumps(content), strict=True)


def chat_chunk(chunk: dict[str, Any]) -> dict[str, Any]:
    """`chunk`, an event of a chat. The first delta of a call has all the text that clients append to."""
    for choice in chunk["choices"]:
        for call in choice["delta"].get("tool_calls", ()):
            if "id" in call:
                written = call[call["type"]]
                assert isinstance(written["name"], str)
                assert isinstance(written["input" if call["type"] == "custom" else "arguments"], str)
    # The type of streamed calls has functions only.
    demand(ChatCompletionChunk, json.loads(json.dumps(chunk).replace('"type": "custom"', '"type": "function"')))
    return chunk


def completion_chunk(chunk: dict[str, Any]) -> dict[str, Any]:
    """`chunk`, an event of a completion.

    Like OpenAI's own it has null where its type does not: as `finish_reason` before the end, and as what the first
    token of a prompt cost.
    """
    choices = [
        choice
        | {"finish_reason": choice["finish_reason"] or "stop"}
        | {
            "logprobs": {
                name: [one for one in many if one is not None] for name, many in (choice["logprobs"] or {}).items()
            }
        }
        for choice in chunk["choices"]
    ]
    demand(Completion, chunk | {"choices": choices})
    return chunk
