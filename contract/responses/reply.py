"""A chat answer as a response: a whole one, and a stream as events.

    response.created, response.in_progress
      for each item: output_item.added, (content_part.added), deltas, done, (content_part.done), output_item.done
    response.completed | response.incomplete | response.failed

Items are in the order in which the model began them. Text and reasoning end where another item begins; calls may be
generated in parallel, so they end with the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from contract.body import Hold
from contract.chat.engine import ChatBatch, ChatReply
from contract.chat.usage import reasoning_tokens
from contract.errors import ApiError
from contract.responses.output import (
    MESSAGE,
    REASONING,
    ItemBuilder,
    Kind,
    Logprobs,
    OutputItem,
    Status,
    call_of,
    logprob,
    spelling,
)
from contract.responses.request import ResponsesRequest
from contract.wires import QUEUE_STATUS, QueueStatus, contents, named_event


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


class ResponseEvents:
    """Converter of the batches of the chat that answers `head` to events, numbered from 0.

    `hold` receives the bytes of logprobs that are kept until the end; an exception from it ends the answer.
    """

    def __init__(self, head: ResponseHead, hold: Hold = lambda count: None) -> None:
        self.head = head
        self._hold = hold
        self._number = 0
        self._items: list[ItemBuilder] = []
        self._speaking: ItemBuilder | None = None
        self._calls: dict[int, ItemBuilder] = {}
        self._logprobs = Logprobs() if head.request.wants_logprobs else None
        self._finish_reason: str | None = None
        self._counted = ChatBatch(b"", 0, 0)
        self._reasoning_tokens = 0

    def of(self, batch: ChatBatch) -> bytes:
        """Returns the events that `batch` adds, possibly none."""
        self._counted = batch
        framed = self._begin()
        for chunk in contents(batch.events):
            if spent := chunk.get("usage"):
                self._reasoning_tokens = reasoning_tokens(spent)
            for choice in chunk["choices"]:
                framed += b"".join(self._choice(choice))
        return framed

    def end(self) -> Iterator[bytes]:
        """Yields the ends of open items and the whole response, one by one: each contains all of the answer."""
        yield self._begin()
        if not self._items:
            yield self._added(MESSAGE)
        status = ending(self._finish_reason)
        for item in self._items:
            if item.status == "in_progress":
                yield from self._done(item, status if item is self._items[-1] else "completed")
        yield self._state(status, f"response.{status}")

    def failed(self, error: ApiError) -> bytes:
        """Returns the last event of an answer that failed. The response contains what was generated of it."""
        framed = self._begin()
        for item in self._items:
            if item.status == "in_progress":
                self._finish(item, "incomplete")
        return framed + self._state("failed", "response.failed", error)

    def queued(self, status: QueueStatus) -> bytes:
        """Returns the event that reports a wait, after that of the creation, which clients expect first."""
        return self._begin() + self._framed(QUEUE_STATUS, **status)

    def _begin(self) -> bytes:
        if self._number:
            return b""
        return self._state("in_progress", "response.created") + self._state("in_progress", "response.in_progress")

    def _state(self, status: ResponseStatus, name: str, error: ApiError | None = None) -> bytes:
        counts = usage(self._counted, self._reasoning_tokens) if status != "in_progress" else None
        output = [item.item() for item in self._items]
        return self._framed(name, response=response(self.head, status, output, counts, error))

    def _choice(self, choice: dict[str, Any]) -> Iterator[bytes]:
        delta = choice["delta"]
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        if self._logprobs:
            self._hold(self._logprobs.add(logprobs_of(choice)))
        if thought := delta.get("reasoning_content"):
            yield self._spoken(REASONING, thought)
        if text := delta.get("content"):
            yield self._spoken(MESSAGE, text)
        for call in delta.get("tool_calls") or ():
            yield self._called(call)

    def _spoken(self, kind: Kind, text: str) -> bytes:
        framed = b""
        if self._speaking is None or self._speaking.kind is not kind:
            framed = self._quiet() + self._added(kind)
            self._speaking = self._items[-1]
        if kind is MESSAGE:
            # Tokens of text that was held back come with that text.
            new = self._logprobs.of_delta() if self._logprobs else []
            return framed + self._delta(self._speaking, text, logprobs=new)
        self._pass_over()
        return framed + self._delta(self._speaking, text)

    def _called(self, call: dict[str, Any]) -> bytes:
        self._pass_over()
        framed = self._quiet()
        kind, name, text = call_of(call)
        item = self._calls.get(call["index"])
        if item is None:
            framed += self._added(kind, call.get("id"), name)
            item = self._calls[call["index"]] = self._items[-1]
        return framed + (self._delta(item, text) if text else b"")

    def _quiet(self) -> bytes:
        """Ends the text or the reasoning under way."""
        item, self._speaking = self._speaking, None
        return b"".join(self._done(item, "completed")) if item else b""

    def _added(self, kind: Kind, call_id: str | None = None, name: str = "") -> bytes:
        item = self.head.new_item(kind, len(self._items), call_id, name)
        self._items.append(item)
        framed = self._framed("response.output_item.added", output_index=item.index, item=item.item())
        if kind.part is None:
            return framed
        return framed + self._framed("response.content_part.added", **self._place(item), part=item.part())

    def _delta(self, item: ItemBuilder, text: str, **more: Any) -> bytes:
        item.pieces.append(text)
        return self._framed(f"{item.kind.events}.delta", **self._place(item), delta=text, **more)

    def _finish(self, item: ItemBuilder, status: Status) -> None:
        item.status = status
        if self._logprobs and item.kind is MESSAGE:
            item.logprobs = self._logprobs.of(item)

    def _pass_over(self) -> None:
        """Drops the latest tokens: those of reasoning and calls belong to no text of the answer."""
        if self._logprobs:
            self._logprobs.discard_pending()

    def _done(self, item: ItemBuilder, status: Status) -> Iterator[bytes]:
        self._finish(item, status)
        place = self._place(item)
        members: dict[str, Any] = {item.kind.key: item.text}
        members |= {"logprobs": item.logprobs} if item.kind is MESSAGE else {}
        yield self._framed(f"{item.kind.events}.done", **place, **members)
        if item.kind.part is not None:
            yield self._framed("response.content_part.done", **place, part=item.part())
        yield self._framed("response.output_item.done", output_index=item.index, item=item.item())

    def _place(self, item: ItemBuilder) -> dict[str, Any]:
        place: dict[str, Any] = {"item_id": item.id, "output_index": item.index}
        return place if item.kind.part is None else place | {"content_index": 0}

    def _framed(self, name: str, **members: Any) -> bytes:
        framed = named_event(name, {"type": name, "sequence_number": self._number, **members})
        self._number += 1
        return self._logprobs.insert_into(framed) if self._logprobs else framed
