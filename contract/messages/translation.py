"""Translation of bodies of Anthropic's wire to chat requests.

system                  a message of role `system`
turns of one role       one turn
tool_result             a message of role `tool`; its images move to the next turn of the user
thinking                left out: templates show no reasoning of earlier answers
server_tool_use         left out, as are results of such tools: the reply says so
thinking, effort        `reasoning_effort`
output_config.format    `response_format`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from contract.body import validated
from contract.catalog.chat import ReasoningEffort
from contract.chat.request import ChatRequest
from contract.messages.request import (
    Block,
    Conversation,
    ImageBlock,
    MessagesRequest,
    MessageTool,
    ServerTool,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

CHOICES = {"auto": "auto", "any": "required", "none": "none"}
"""`tool_choice.type`, and its name in chat."""
SAMPLING = ("temperature", "top_p", "top_k", "stream")
"""Fields that have the same name and meaning on both wires."""
SCHEMA_NAME = "answer"
"""Name of every schema: chat requires one, and this wire has none."""
FAILED = "The tool failed:"
"""Prefix of the result of a failed tool: chat templates have no other mark for it."""
DEFAULT_EFFORT: ReasoningEffort = "medium"


def chat_request(body: Conversation) -> ChatRequest:
    """Returns `body` as a chat request. Raises INVALID_REQUEST for faults that chat finds, such as a costly schema."""
    system = [{"role": "system", "content": _parts(body.system)}] if body.system else []
    fields: dict[str, Any] = {"model": body.model, "messages": [*system, *_turns(body)]}
    fields |= _tools(body) | _reasoning(body)
    if body.output_config and body.output_config.format:
        schema = {"name": SCHEMA_NAME, "schema": body.output_config.format.schema_, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if isinstance(body, MessagesRequest):
        fields |= {name: getattr(body, name) for name in SAMPLING} | {"stop": body.stop_sequences}
        fields["max_tokens"] = max(body.max_tokens, 1)  # an engine reads no prompt without generating a token
        fields["stream_options"] = {"include_usage": True}
    return validated(ChatRequest, fields)


def _turns(body: Conversation) -> Iterator[dict[str, Any]]:
    for role, turns in groupby(body.messages, lambda turn: turn.role):
        blocks = [block for turn in turns for block in turn.content]
        if role == "user":
            yield from _user(blocks)
        else:
            calls = [_call(block) for block in blocks if isinstance(block, ToolUseBlock)]
            yield {"role": role, "content": _parts(blocks), "tool_calls": calls or None}


def _user(blocks: list[Block]) -> Iterator[dict[str, Any]]:
    """Yields results of tools first, because models expect them right after the calls."""
    results = [block for block in blocks if isinstance(block, ToolResultBlock)]
    for result in results:
        failed = [{"type": "text", "text": FAILED}] if result.is_error else []
        texts = [part for part in result.content if isinstance(part, TextBlock)]
        yield {"role": "tool", "tool_call_id": result.tool_use_id, "content": failed + _parts(texts)}
    shown = [part for result in results for part in result.content if isinstance(part, ImageBlock)]
    if parts := _parts(shown) + _parts(blocks):
        yield {"role": "user", "content": parts}


def _call(block: ToolUseBlock) -> dict[str, Any]:
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": block.input}}


def _parts(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """Returns the texts and images of `blocks`."""
    return [
        {"type": "text", "text": block.text}
        if isinstance(block, TextBlock)
        else {"type": "image_url", "image_url": {"url": block.source.address}}
        for block in blocks
        if isinstance(block, TextBlock | ImageBlock)
    ]


def _tools(body: Conversation) -> dict[str, Any]:
    fields: dict[str, Any] = {"tools": [_tool(tool) for tool in body.tools or ()] or None}
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
    """Returns the effort, or nothing if the body has no setting: then the default of the model applies."""
    effort = body.output_config.effort if body.output_config else None
    if body.thinking and body.thinking.type == "disabled":
        return {"reasoning_effort": "none"}
    return {"reasoning_effort": effort or DEFAULT_EFFORT} if body.thinking or effort else {}
