"""What official SDKs demand of replies and of events: every field that they require, each of its type.

And what the events of a message on Anthropic's wire add up to.
"""

import json
from functools import cache
from typing import Any

from openai.types.chat import ChatCompletionChunk
from openai.types.completion import Completion
from pydantic import TypeAdapter
from pydantic_core import from_json

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


def added_up(sent: bytes) -> dict[str, Any]:
    """The message that the events in `sent` add up to, as a client adds them. Fails where they come in no order."""
    made: dict[str, Any] = {}
    written: dict[int, str] = {}
    opened: list[int] = []
    for framed in sent.decode().split("\n\n")[:-1]:
        name, _, data = framed.partition("\n")
        content = json.loads(data.removeprefix("data: "))
        assert name == f"event: {content['type']}"
        match content["type"]:
            case "message_start":
                assert not made
                made = content["message"]
            case "content_block_start":
                assert not opened
                assert content["index"] == len(made["content"])
                opened.append(content["index"])
                made["content"].append(content["content_block"])
            case "content_block_delta":
                assert opened == [content["index"]]
                _add(made["content"][content["index"]], content["delta"], written, content["index"])
            case "content_block_stop":
                assert opened.pop() == content["index"]
            case "message_delta":
                assert not opened
                made |= content["delta"]
                made["usage"] |= content["usage"]
            case other:
                assert other == "message_stop"
    for index, partial in written.items():
        made["content"][index]["input"] = from_json(partial, allow_partial=True)
    assert content["type"] == "message_stop"
    return made


def _add(block: dict[str, Any], delta: dict[str, Any], written: dict[int, str], index: int) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case _:
            written[index] = written.get(index, "") + delta["partial_json"]
