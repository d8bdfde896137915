"""A chat stream as the events of a message.

    message_start
    content_block_start, content_block_delta ..., content_block_stop      for each block, one after the other
    message_delta        stop reason, all tokens
    message_stop

`ping` fills silence; `error` ends a stream that fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contract.chat.engine import ChatBatch
from contract.chat.usage import reasoning_tokens
from contract.errors import ApiError
from contract.messages.reply import opening, stop_reason, usage
from contract.wires import contents, error_body, named_event


def framed(content: dict[str, Any]) -> bytes:
    """Returns `content` as an event with the name of its type: clients ignore events without a name."""
    return named_event(content["type"], content)


PING = framed({"type": "ping"})


def failed(error: ApiError, request_id: str) -> bytes:
    """Returns the event of an error in a stream that has begun."""
    return framed(error_body(error, request_id))


class MessageEvents:
    """Converter of the batches of one chat stream with one choice to the events of a message of `model`.

    If `is_silent`, the message has no content.
    """

    def __init__(self, model: str, is_silent: bool = False) -> None:
        self._is_silent = is_silent
        self._model = model
        self._last: ChatBatch | None = None
        self._blocks = 0
        self._open: str | None = None
        self._call: int | None = None
        self._has_called = False
        self._finish_reason: str | None = "length" if is_silent else None
        self._stop_sequence: str | None = None
        self._reasoning_tokens = 0

    def of(self, batch: ChatBatch) -> bytes:
        """Returns the events that `batch` adds, possibly none."""
        chunks = list(contents(batch.events))
        events = [self._start(chunks, batch)] if self._last is None else []
        self._last = batch
        self._stop_sequence = batch.stop_sequence or self._stop_sequence
        for chunk in chunks:
            events += self._chunk(chunk)
        return b"".join(map(framed, events))

    def end(self) -> Iterator[bytes]:
        """Returns the last events, after the end of the chat stream."""
        events = self._close()
        if self._last is not None:
            reason = stop_reason(self._finish_reason, self._stop_sequence, has_called=self._has_called)
            delta = {"stop_reason": reason, "stop_sequence": self._stop_sequence}
            spent = usage(self._last, self._reasoning_tokens)
            events += [{"type": "message_delta", "delta": delta, "usage": spent}, {"type": "message_stop"}]
        return map(framed, events)

    def _start(self, chunks: list[dict[str, Any]], batch: ChatBatch) -> dict[str, Any]:
        chat_id = next((chunk["id"] for chunk in chunks), "")
        return {"type": "message_start", "message": opening(chat_id, self._model, usage(batch))}

    def _chunk(self, chunk: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if spent := chunk.get("usage"):
            self._reasoning_tokens = reasoning_tokens(spent)
        for choice in () if self._is_silent else chunk["choices"]:
            delta = choice["delta"]
            if thoughts := delta.get("reasoning_content"):
                yield from self._say("thinking", {"signature": ""}, thoughts)
            if text := delta.get("content"):
                yield from self._say("text", {}, text)
            for call in delta.get("tool_calls") or ():
                yield from self._call_delta(call)
            self._finish_reason = choice.get("finish_reason") or self._finish_reason

    def _say(self, kind: str, more: dict[str, Any], text: str) -> Iterator[dict[str, Any]]:
        """Yields the events for a piece of reasoning or text."""
        if self._open != kind:
            yield from self._begin({"type": kind, kind: "", **more})
        yield self._delta({"type": f"{kind}_delta", kind: text})

    def _call_delta(self, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
        function = call.get("function") or {}
        if self._open != "tool_use" or self._call != call["index"]:
            self._call, self._has_called = call["index"], True
            block: dict[str, Any] = {
                "type": "tool_use",
                "id": call.get("id") or "",
                "name": function.get("name") or "",
                "input": {},
            }
            yield from self._begin(block)
        if arguments := function.get("arguments"):
            yield self._delta({"type": "input_json_delta", "partial_json": arguments})

    def _begin(self, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from self._close()
        self._open = block["type"]
        self._blocks += 1
        yield {"type": "content_block_start", "index": self._blocks - 1, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._blocks - 1, "delta": delta}

    def _close(self) -> list[dict[str, Any]]:
        if self._open is None:
            return []
        self._open = None
        return [{"type": "content_block_stop", "index": self._blocks - 1}]
