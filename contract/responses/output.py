"""Items of an answer: reasoning, text, calls of tools."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypeVar, cast

from typing_extensions import TypedDict

from contract.wires import json_bytes

L = TypeVar("L")

Status = Literal["in_progress", "completed", "incomplete"]


class TopLogprob(TypedDict):
    """An alternative token for one place of the answer."""

    token: str
    bytes: list[int]
    logprob: float


class Logprob(TopLogprob):
    """A token of the answer, and the most probable ones in its place."""

    top_logprobs: list[TopLogprob]


class OutputText(TypedDict):
    """Text of the answer."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[Logprob]


class ReasoningText(TypedDict):
    """Reasoning before the answer."""

    type: Literal["reasoning_text"]
    text: str


class OutputItem(TypedDict):
    """A `message`, `reasoning`, a `function_call` or a `custom_tool_call`.

    A message and reasoning have `content`; a call has `call_id`, `name` and `arguments` (custom tools: `input`), and
    the `namespace` of its tool if that has one.
    """

    id: str
    type: Literal["message", "reasoning", "function_call", "custom_tool_call"]
    status: Status
    role: NotRequired[Literal["assistant"]]
    content: NotRequired[list[OutputText | ReasoningText]]
    summary: NotRequired[list[Any]]
    call_id: NotRequired[str]
    name: NotRequired[str]
    namespace: NotRequired[str]
    arguments: NotRequired[str]
    input: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of item: its type, and the prefix of its id.

    Attributes:
        events: prefix of the names of its `.delta` and `.done` events.
        key: member with the text, of the item or of its one part.
        part: type of that part; None for items without parts.
    """

    type: Literal["message", "reasoning", "function_call", "custom_tool_call"]
    prefix: str
    events: str
    key: str
    part: str | None = None


REASONING = Kind("reasoning", "rs", "response.reasoning_text", "text", "reasoning_text")
MESSAGE = Kind("message", "msg", "response.output_text", "text", "output_text")
FUNCTION_CALL = Kind("function_call", "fc", "response.function_call_arguments", "arguments")
CUSTOM_CALL = Kind("custom_tool_call", "ctc", "response.custom_tool_call_input", "input")


@dataclass(slots=True)
class ItemBuilder:
    """An item under construction.

    Attributes:
        index: place in the output.
        call: `call_id`, `name` and `namespace` of a call.
        pieces: pieces of the text: the answer, the reasoning, or the arguments of a call.
        status: `in_progress` until the item is done.
        logprobs: logprobs of the tokens of the text, once the item is done; or a placeholder until they are written
            (`Logprobs`).
    """

    kind: Kind
    index: int
    id: str
    call: dict[str, str]
    pieces: list[str] = field(default_factory=list)
    status: Status = "in_progress"
    logprobs: list[Logprob] | str = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def part(self) -> dict[str, Any]:
        """Returns the one part of the content."""
        part = {"type": self.kind.part, "text": self.text}
        return part | {"annotations": [], "logprobs": self.logprobs} if self.kind is MESSAGE else part

    def item(self) -> OutputItem:
        """Returns the item so far, without content while it is in progress."""
        item: dict[str, Any] = {"id": self.id, "type": self.kind.type, "status": self.status}
        if self.kind.part is None:
            item |= self.call | {self.kind.key: self.text}
        else:
            content = [] if self.status == "in_progress" else [self.part()]
            head: dict[str, Any] = {"summary": []} if self.kind is REASONING else {"role": "assistant"}
            item |= head | {"content": content}
        return cast(OutputItem, item)


def call_of(call: dict[str, Any]) -> tuple[Kind, str, str]:
    """Returns kind, name and text of a tool call of a chat, or of a piece of one; what a piece lacks is empty."""
    if called := call.get("custom"):
        return CUSTOM_CALL, called.get("name") or "", called.get("input") or ""
    called = call.get("function") or {}
    return FUNCTION_CALL, called.get("name") or "", called.get("arguments") or ""


def spelling(text: str, tokens: Sequence[tuple[str, L]]) -> list[L]:
    """Returns the values of those `tokens` that spell `text`: an answer has tokens of reasoning and calls as well.

    Returns all values if the text is not found, which happens if a character has several tokens.
    """
    if not tokens:
        return []
    spelled = "".join(token for token, _ in tokens)
    start = spelled.rfind(text) if text else -1
    if start < 0:
        return [value for _, value in tokens]
    values, at = [], 0
    for token, value in tokens:
        if at < start + len(text) and at + len(token) > start:
            values.append(value)
        at += len(token)
    return values


def logprob(token: dict[str, Any]) -> Logprob:
    """Returns an entry of the `logprobs` of a chat, always with its bytes."""
    return {**_top_logprob(token), "top_logprobs": [_top_logprob(other) for other in token["top_logprobs"]]}


def _top_logprob(token: dict[str, Any]) -> TopLogprob:
    return {"token": token["token"], "bytes": token.get("bytes") or [], "logprob": token["logprob"]}


MARK = secrets.token_hex(16)
"""Placeholder of logprobs, followed by a number. It is random, and never sent."""
PLACE = re.compile(rb'"logprobs":"%s(\d+)"' % MARK.encode())
"""Member with a placeholder. Quotes inside a text are escaped, so nothing else matches."""
NEW = 0
"""Number of the tokens of the latest delta; that of an item is its place plus one."""


class Logprobs:
    """Logprobs of one stream."""

    def __init__(self) -> None:
        self._tokens: list[tuple[str, bytes]] = []
        self._new: list[bytes] = []
        self._texts: dict[int, bytes] = {}

    def add(self, tokens: Sequence[dict[str, Any]]) -> int:
        """Stores tokens of a chat and returns the bytes that they occupy."""
        encoded = [(token["token"], json_bytes(logprob(token))) for token in tokens]
        self._tokens += encoded
        self._new += (text for _, text in encoded)
        return sum(len(text) for _, text in encoded)

    def of_delta(self) -> str:
        """Returns a placeholder of the tokens since the last delta."""
        self._texts[NEW] = b",".join(self._new)
        self._new = []
        return f"{MARK}{NEW}"

    def discard_pending(self) -> None:
        """Drops the tokens since the last delta, which spell no text of the answer."""
        self._new = []

    def of(self, item: ItemBuilder) -> str:
        """Returns a placeholder of the tokens of the text of `item`. Earlier tokens of reasoning are dropped."""
        self._texts[item.index + 1] = b",".join(spelling(item.text, self._tokens))
        self._tokens = []
        return f"{MARK}{item.index + 1}"

    def insert_into(self, event: bytes) -> bytes:
        """Returns `event` with logprobs in place of their placeholders."""
        return PLACE.sub(lambda match: b'"logprobs":[%s]' % self._texts[int(match[1])], event)
