"""Fields of a request that reach vLLM: these and no others (an allow-list by construction, no copy of the body).

vLLM's own request object has several times as many fields, among them templates to render, processor arguments and
priorities. None of those is a client's to set.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from contract.base import Lenient
from contract.catalog import ThinkingOptions
from contract.chat.request import ChatRequest, Message, Part
from contract.chat.schemas import resolvable
from contract.chat.thinking import reasoning_settings
from contract.chat.tools import NOTHING, AllowedChoice, NamedCustomTool, NamedTool
from contract.completions import CompletionRequest

COPIED = (
    "min_p", "n", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "stop", "parallel_tool_calls",
)  # fmt: skip
"""Fields that have the same name and meaning on both sides; None is left out."""
DEFAULT_TEMPERATURE = 1.0
MAX_TOP_K = 2**31 - 1
"""Beyond every vocabulary; vLLM keeps it in 32 bits."""


def engine_fields(request: ChatRequest, owner: str = "", thinking: ThinkingOptions | None = None) -> dict[str, Any]:
    """Keyword arguments of vLLM's `ChatCompletionRequest` for `request`.

    Prefix caches are salted with `owner`, so that no organisation can time another. `thinking` is the model's.
    Raises INVALID_REQUEST for template variables that it does not allow.
    """
    settings = reasoning_settings(request, thinking)
    fields: dict[str, Any] = {name: getattr(request, name) for name in COPIED} | drawing(request, request.n or 1)
    fields |= {
        "messages": _messages(request.messages),
        "stream": bool(request.stream),
        "stream_options": {"include_usage": True} if request.include_usage and request.stream else None,
        "max_completion_tokens": request.budget,
        "logprobs": request.logprobs or None,
        "top_logprobs": (request.top_logprobs or 0) if request.logprobs else None,
        "custom_tools": request.custom_tools or None,
        "structured_outputs": _plain(request.structured_outputs) if request.structured_outputs else None,
        "cache_salt": owner or None,
        "chat_template_kwargs": settings.variables or None,
        "reasoning_effort": settings.level,
        "thinking_token_budget": settings.budget_tokens,
    }
    if request.offered:
        fields |= {"tools": _tools(request), "tool_choice": _tool_choice(request)}
    if request.response_format and request.response_format.type != "text":
        fields["response_format"] = form = _plain(request.response_format)
        if "json_schema" in form:
            form["json_schema"]["schema"] = resolvable(form["json_schema"]["schema"])
    return {name: value for name, value in fields.items() if value is not None}


def drawing(request: ChatRequest | CompletionRequest, answers: int) -> dict[str, Any]:
    """`temperature`, `top_p` and `top_k` as vLLM takes them."""
    if request.top_p == 0 or (request.temperature == 0 and answers > 1):
        # vLLM refuses these; the most probable token alone is the same thing.
        return {"temperature": DEFAULT_TEMPERATURE, "top_k": 1}
    fields: dict[str, Any] = {
        "temperature": DEFAULT_TEMPERATURE if request.temperature is None else request.temperature,
        "top_p": request.top_p,
        "top_k": None if request.top_k is None else min(max(request.top_k, 0), MAX_TOP_K),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _plain(value: Lenient) -> dict[str, Any]:
    return value.model_dump(exclude_none=True, by_alias=True)


def _tools(request: ChatRequest) -> list[dict[str, Any]]:
    """The tools as functions; a forced call follows its schema, unless the client says `strict: false`."""
    tools = [_plain(tool) for tool in request.offered.values()]
    for function in (tool["function"] for tool in tools):
        takes_nothing = NOTHING.items() <= function["parameters"].items()
        function["parameters"] = resolvable(function["parameters"])
        if request.is_tool_forced:
            function["strict"] = takes_nothing or function.get("strict", True)
    return tools


def _tool_choice(request: ChatRequest) -> str | dict[str, Any]:
    choice = request.tool_choice or "auto"
    if isinstance(choice, AllowedChoice):
        return choice.allowed_tools.mode
    if isinstance(choice, NamedTool | NamedCustomTool):
        return {"type": "function", "function": {"name": choice.name}}
    return choice


def _messages(messages: list[Message]) -> list[dict[str, Any]]:
    """The messages; those of role `system` at the start are one, because many templates support only that one."""
    system = list(takewhile(lambda message: message.role == "system", messages))
    parts = [part for message in system for part in message.parts]
    first = [_message(message) | {"content": _content(parts)} for message in system[:1]]
    return first + [_message(message) for message in messages[len(system) :]]


def _message(message: Message) -> dict[str, Any]:
    calls = [_plain(call.as_function) for call in message.tool_calls or () if message.role == "assistant"]
    call_id = message.tool_call_id if message.role == "tool" else None
    further = {"name": message.name, "tool_call_id": call_id, "tool_calls": calls or None}
    present = {name: value for name, value in further.items() if value is not None}
    return {"role": message.role, "content": _content(message.parts)} | present


def _content(parts: list[Part]) -> str | list[dict[str, Any]]:
    """Text alone is given as a string, which every chat template takes. A refusal is text, too."""
    if all(part.words is not None for part in parts):
        return "\n".join(part.words or "" for part in parts)
    return [_plain(part) if part.words is None else {"type": "text", "text": part.words} for part in parts]


def answer_reserve(budget: int | None, window: int) -> int:
    """Tokens kept free for the answer when an input longer than the window is cut: the budget, at most a quarter."""
    return max(1, min(budget or window, window // 4))
