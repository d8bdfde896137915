"""What the events of a message on Anthropic's wire add up to."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json


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
