"""A chat stream as the events of a response.

    response.created, response.in_progress
      for each item: output_item.added, (content_part.added), deltas, done, (content_part.done), output_item.done
    response.completed | response.incomplete | response.failed

Items are in the order in which the model began them. Text and reasoning end where another item begins; calls may be
generated in parallel, so they end with the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contract.body import Hold
from contract.chat.engine import ChatBatch
from contract.chat.usage import reasoning_tokens
from contract.errors import ApiError
from contract.responses.output import MESSAGE, REASONING, ItemBuilder, Kind, Logprobs, Status, call_of
from contract.responses.reply import ResponseHead, ResponseStatus, ending, logprobs_of, response, usage
from contract.wires import QUEUE_STATUS, QueueStatus, contents, named_event


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
