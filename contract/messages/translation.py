"""A body of Anthropic's wire as the chat request that means the same.

system                  a message of role `system`
turns of one role       one turn
tool_result             a message of role `tool`; its images come in the turn of the user that follows
thinking                left out: templates show no thoughts of earlier answers
thinking, effort        `reasoning_effort`
output_config.format    `response_format`
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from contract.body import validated
from contract.catalog.chat import ReasoningEffort
from contract.chat.request import ChatRequest
from contract.messages.blocks import Block, ImageBlock, TextBlock, ToolResultBlock, ToolUseBlock
from contract.messages.request import Conversation, MessagesRequest, MessageTool, ServerTool

CHOICES = {"auto": "auto", "any": "required", "none": "none"}
"""`tool_choice.type`, and what chat calls it."""
SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "stream")
"""Fields that have the same name and meaning on both wires."""
SCHEMA_NAME = "answer"
"""Chat wants a name for a schema; this wire has none."""
FAILED = "The tool failed:"
"""Stands before the result of a tool that failed: chat templates know no other sign of it."""
DEFAULT_EFFORT: ReasoningEffort = "medium"


def chat_request(body: Conversation) -> ChatRequest:
    """`body` for the flow of chat. Raises INVALID_REQUEST for what only chat can judge, such as a dear schema."""
    fields: dict[str, Any] = {"model": body.model, "messages": [*_system(body), *_turns(body)]}
    fields |= _tools(body) | _reasoning(body)
    if body.output_config and body.output_config.format:
        schema = {"name": SCHEMA_NAME, "schema": body.output_config.format.schema_, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if isinstance(body, MessagesRequest):
        fields |= {name: getattr(body, name) for name in SAMPLING} | {"stop": body.stop_sequences}
        fields["stream_options"] = {"include_usage": True}
    return validated(ChatRequest, fields)


def _system(body: Conversation) -> Iterator[dict[str, Any]]:
    if body.system:
        yield {"role": "system", "content": [_part(block) for block in body.system]}


def _turns(body: Conversation) -> Iterator[dict[str, Any]]:
    for role, turns in groupby(body.messages, lambda turn: turn.role):
        blocks = [block for turn in turns for block in turn.content]
        match role:
            case "user":
                yield from _user(blocks)
            case "assistant":
                yield _assistant(blocks)
            case _:
                yield {"role": role, "content": _parts(blocks)}


def _user(blocks: list[Block]) -> Iterator[dict[str, Any]]:
    """Results of tools first, as models expect them: right after the calls."""
    results = [block for block in blocks if isinstance(block, ToolResultBlock)]
    for result in results:
        failed = [{"type": "text", "text": FAILED}] if result.is_error else []
        texts = [part for part in result.content if isinstance(part, TextBlock)]
        yield {"role": "tool", "tool_call_id": result.tool_use_id, "content": failed + _parts(texts)}
    shown = [part for result in results for part in result.content if isinstance(part, ImageBlock)]
    if parts := _parts(shown) + _parts(blocks):
        yield {"role": "user", "content": parts}


def _assistant(blocks: list[Block]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": _parts(blocks)}
    if calls := [_call(block) for block in blocks if isinstance(block, ToolUseBlock)]:
        message["tool_calls"] = calls
    return message


def _call(block: ToolUseBlock) -> dict[str, Any]:
    arguments = json.dumps(block.input, ensure_ascii=False)
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}


def _parts(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """Texts and images of `blocks`."""
    return [_part(block) for block in blocks if isinstance(block, TextBlock | ImageBlock)]


def _part(block: TextBlock | ImageBlock) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    return {"type": "image_url", "image_url": {"url": block.source.address}}


def _tools(body: Conversation) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if body.tools:
        fields["tools"] = [_tool(tool) for tool in body.tools]
    if choice := body.tool_choice:
        named = {"type": "function", "function": {"name": choice.name}}
        fields["tool_choice"] = CHOICES.get(choice.type, named)
        fields["parallel_tool_calls"] = False if choice.disable_parallel_tool_use else None
    return fields


def _tool(tool: MessageTool | ServerTool) -> dict[str, Any]:
    if isinstance(tool, ServerTool):
        return {"type": tool.type}
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function | {"strict": tool.strict}}


def _reasoning(body: Conversation) -> dict[str, ReasoningEffort]:
    """Nothing where the body says nothing: then it is the model's own habit."""
    effort = body.output_config.effort if body.output_config else None
    if body.thinking and body.thinking.type == "disabled":
        return {"reasoning_effort": "none"}
    if body.thinking or effort:
        return {"reasoning_effort": effort or DEFAULT_EFFORT}
    return {}
