"""What of a request reaches vLLM: these fields and no others (an allow-list by construction, no copy of the body).

vLLM's own request object has several times as many fields, among them templates to render, processor arguments and
priorities. None of those is a client's to set.
"""

from __future__ import annotations

from typing import Any

from contract.base import Lenient
from contract.catalog import ThinkingOptions
from contract.chat.request import ChatRequest, Message, Part
from contract.chat.thinking import reasoning_settings
from contract.chat.tools import AllowedChoice, NamedCustomTool, NamedTool

COPIED = (
    "top_p", "min_p", "n", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "stop",
    "parallel_tool_calls",
)  # fmt: skip
"""Fields that have the same name and meaning on both sides; None is left out."""
DEFAULT_TEMPERATURE = 1.0


def engine_fields(
    request: ChatRequest, cache_salt: str | None = None, thinking: ThinkingOptions | None = None
) -> dict[str, Any]:
    """Keyword arguments of vLLM's `ChatCompletionRequest` for `request`.

    `cache_salt` is the server's and not the client's: it keeps the prefix caches of tenants apart. `thinking` is the
    model's. Raises INVALID_REQUEST for template variables that it does not allow.
    """
    fields: dict[str, Any] = {name: value for name in COPIED if (value := getattr(request, name)) is not None}
    fields["messages"] = [_message(message) for message in request.messages]
    fields |= _sampling(request) | _thinking(request, thinking)
    fields["stream"] = bool(request.stream)
    if request.budget is not None:
        fields["max_completion_tokens"] = request.budget
    if request.include_usage and request.stream:
        fields["stream_options"] = {"include_usage": True}
    if request.logprobs:
        fields |= {"logprobs": True, "top_logprobs": request.top_logprobs or 0}
    if request.offered:
        fields |= {"tools": _tools(request), "tool_choice": _tool_choice(request)}
    if request.custom_tools:
        fields["custom_tools"] = request.custom_tools
    if request.response_format and request.response_format.type != "text":
        fields["response_format"] = _plain(request.response_format)
    if request.structured_outputs:
        fields["structured_outputs"] = _plain(request.structured_outputs)
    if cache_salt is not None:
        fields["cache_salt"] = cache_salt
    return fields


def _sampling(request: ChatRequest) -> dict[str, Any]:
    if request.temperature == 0 and (request.n or 1) > 1:
        # vLLM refuses several greedy answers; the most probable token alone is the same thing.
        return {"temperature": DEFAULT_TEMPERATURE, "top_k": 1}
    sampling: dict[str, Any] = {
        "temperature": DEFAULT_TEMPERATURE if request.temperature is None else request.temperature
    }
    return sampling if request.top_k is None else sampling | {"top_k": max(request.top_k, 0)}


def _thinking(request: ChatRequest, thinking: ThinkingOptions | None) -> dict[str, Any]:
    said = reasoning_settings(request, thinking)
    fields = {
        "chat_template_kwargs": said.variables or None,
        "reasoning_effort": said.level,
        "thinking_token_budget": said.budget_tokens,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _plain(value: Lenient) -> dict[str, Any]:
    return value.model_dump(exclude_none=True, by_alias=True)


def _tools(request: ChatRequest) -> list[dict[str, Any]]:
    """As functions; a call that is forced follows its schema, where the client does not say `strict: false`."""
    tools = [_plain(tool) for tool in request.offered.values()]
    if request.is_tool_forced:
        for tool in tools:
            tool["function"].setdefault("strict", True)
    return tools


def _tool_choice(request: ChatRequest) -> str | dict[str, Any]:
    choice = request.tool_choice or "auto"
    if isinstance(choice, AllowedChoice):
        return choice.allowed_tools.mode
    if isinstance(choice, NamedTool | NamedCustomTool):
        return {"type": "function", "function": {"name": choice.name}}
    return choice


def _message(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": _content(message.parts)}
    if message.name is not None:
        fields["name"] = message.name
    if message.role == "tool":
        fields["tool_call_id"] = message.tool_call_id
    if message.role == "assistant" and message.tool_calls:
        fields["tool_calls"] = [_plain(call.as_function) for call in message.tool_calls]
    return fields


def _content(parts: list[Part]) -> str | list[dict[str, Any]]:
    """Text alone is given as a string, which every chat template takes. A refusal is text, too."""
    if all(part.words is not None for part in parts):
        return "\n".join(part.words or "" for part in parts)
    return [_plain(part) if part.words is None else {"type": "text", "text": part.words} for part in parts]


def answer_reserve(budget: int | None, window: int) -> int:
    """Tokens kept free for the answer when an input longer than the window is cut: the budget, at most a quarter."""
    return max(1, min(budget or window, window // 4))
