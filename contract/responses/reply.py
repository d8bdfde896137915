"""A chat answer as a response: every member of OpenAI's object that has a meaning here.

ResponseHead    identity of a response, before any of it is generated
response(...)   the object, in any of its states
whole(...)      the object of a whole answer
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from contract.chat.engine import ChatBatch, ChatReply
from contract.chat.usage import reasoning_tokens
from contract.errors import ApiError
from contract.responses.output import MESSAGE, REASONING, ItemBuilder, Kind, OutputItem, call_of, logprob, spelling
from contract.responses.request import ResponsesRequest


class InputTokensDetails(TypedDict):
    """Tokens of the input that an earlier request left in the cache. Writing to the cache is never billed."""

    cached_tokens: int
    cache_write_tokens: Literal[0]


class OutputTokensDetails(TypedDict):
    """Reasoning tokens of the output."""

    reasoning_tokens: int


class ResponseUsage(TypedDict):
    """Tokens of the call. `input_tokens_cut` counts tokens that did not fit and were cut from the top, if any were."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int
    input_tokens_cut: NotRequired[int]


class ResponseFailure(TypedDict):
    """Error that ended a stream. `type` is that of the Error object, `code` one of OpenAI's."""

    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str
    param: str | None
    type: str


class IncompleteDetails(TypedDict):
    """Reason of an incomplete answer: it reached `max_output_tokens`, or the end of the window."""

    reason: Literal["max_output_tokens"]


ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]


class ResponseReply(TypedDict):
    """An answer. It repeats fields of the request; nothing is stored, so `store` is always false."""

    id: str
    object: Literal["response"]
    created_at: int
    status: ResponseStatus
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None
    store: Literal[False]
    background: Literal[False]
    previous_response_id: None
    service_tier: Literal["default"]
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    prompt_cache_key: str | None
    reasoning: dict[str, str | None]
    safety_identifier: str | None
    temperature: float | None
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float | None
    truncation: Literal["auto", "disabled"]
    user: str | None


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Identity of a response: its request, its model, and its start, in Unix time (s).

    `request_id` is the id that the server gave the request; the ids of the response and its items derive from it.
    """

    request: ResponsesRequest
    request_id: str
    created_s: int
    model: str

    def new_item(self, kind: Kind, index: int, call_id: str | None = None, name: str = "") -> ItemBuilder:
        """Returns an empty item at `index` of the output. `call_id` and `name` are those of a call in a chat."""
        tail = f"{self._stem}_{index}"
        call: dict[str, str] = {}
        if kind.part is None:
            namespace, own = self.request.names.path(name)
            call = {"call_id": call_id or f"call_{tail}", "name": own}
            call |= {"namespace": namespace} if namespace is not None else {}
        return ItemBuilder(kind, index, f"{kind.prefix}_{tail}", call)

    @property
    def id(self) -> str:
        return f"resp_{self._stem}"

    @property
    def _stem(self) -> str:
        return self.request_id.partition("_")[2] or self.request_id


def response(
    head: ResponseHead,
    status: ResponseStatus,
    output: list[OutputItem],
    usage: ResponseUsage | None = None,
    error: ApiError | None = None,
) -> ResponseReply:
    """Returns the object of a response, in any of its states."""
    members = {
        "id": head.id,
        "object": "response",
        "created_at": head.created_s,
        "status": status,
        "error": failure(error) if error else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "model": head.model,
        "output": output,
        "usage": usage,
        "store": False,
        "background": False,
        "previous_response_id": None,
        "service_tier": "default",
    }
    return cast(ResponseReply, members | head.request.echo())


def whole(head: ResponseHead, reply: ChatReply) -> ResponseReply:
    """Returns the response of a finished answer."""
    choice = reply.body["choices"][0]
    items = _items_of(head, choice["message"])
    status = ending(choice["finish_reason"])
    tokens = [(token["token"], logprob(token)) for token in logprobs_of(choice)]
    for item in items:
        item.status = status if item is items[-1] else "completed"
        if item.kind is MESSAGE:
            item.logprobs = spelling(item.text, tokens)
    counts = usage(reply, reasoning_tokens(reply.body["usage"]))
    return response(head, status, [item.item() for item in items], counts)


def _items_of(head: ResponseHead, message: dict[str, Any]) -> list[ItemBuilder]:
    """Returns the items of a message of a chat: reasoning, text, calls of tools."""
    items: list[ItemBuilder] = []
    calls = message.get("tool_calls") or ()
    texts = ((REASONING, message.get("reasoning_content")), (MESSAGE, message.get("content")))
    for kind, text in texts:
        if text:
            items.append(head.new_item(kind, len(items)))
            items[-1].pieces.append(text)
    for call in calls:
        kind, name, arguments = call_of(call)
        items.append(head.new_item(kind, len(items), call.get("id"), name))
        items[-1].pieces.append(arguments)
    return items or [head.new_item(MESSAGE, 0)]


def ending(reason: str | None) -> Literal["completed", "incomplete"]:
    """Returns the status of an answer that ended for `reason`, and of its last item; earlier items are completed."""
    return "incomplete" if reason == "length" else "completed"


def logprobs_of(choice: Any) -> list[dict[str, Any]]:
    """Returns the logprobs of a choice, or of a piece of one."""
    return ((choice.get("logprobs") or {}).get("content")) or []


def usage(counted: ChatReply | ChatBatch, reasoning: int) -> ResponseUsage:
    """Returns the token counts of an answer, or of a stream so far."""
    counts: ResponseUsage = {
        "input_tokens": counted.prompt_tokens,
        "input_tokens_details": {"cached_tokens": counted.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": counted.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": counted.prompt_tokens + counted.completion_tokens,
    }
    if counted.cut_tokens:
        counts["input_tokens_cut"] = counted.cut_tokens
    return counts


def failure(error: ApiError) -> ResponseFailure:
    """Returns the error of a stream that has begun."""
    status = error.fault.status
    code: Any = "server_error" if status >= 500 else "invalid_prompt"
    # OpenAI's API reports an exhausted budget as a rate limit.
    code = "rate_limit_exceeded" if status in (402, 429) else code
    return {"code": code, "message": error.message, "param": error.param, "type": error.fault.type}
