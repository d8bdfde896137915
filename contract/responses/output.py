"""Items of an answer: what the model thought, what it said, which tools it calls."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypeVar

from typing_extensions import TypedDict

from contract.wires import json_bytes

L = TypeVar("L")

Status = Literal["in_progress", "completed", "incomplete"]


class TopLogprob(TypedDict):
    """A token that could have stood in the same place."""

    token: str
    bytes: list[int]
    logprob: float


class Logprob(TopLogprob):
    """A token of the answer, and the most probable ones in its place."""

    top_logprobs: list[TopLogprob]


class OutputText(TypedDict):
    """What the model said."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[Logprob]


class ReasoningText(TypedDict):
    """What the model thought before it answered."""

    type: Literal["reasoning_text"]
    text: str


class OutputItem(TypedDict):
    """One of: a `message`, `reasoning`, a `function_call`, a `custom_tool_call`.

    A message and reasoning have `content`; a call has `call_id`, `name` and `arguments` (custom tools: `input`), and
    the `namespace` of its tool where that has one.
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
        events: what its `.delta` and `.done` events are called.
        key: the member that holds its text, of the item or of its one part.
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
    """An item in the making.

    Attributes:
        index: its place in the output.
        call: `call_id`, `name` and `namespace` of a call.
        pieces: of its text: what is said, what is thought, the arguments of a call.
        status: `in_progress` until the item is done.
        logprobs: of the tokens that spell the text, once the item is done; or what stands for them until they are
            written (`Logprobs`).
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
        """The one part of its content."""
        part = {"type": self.kind.part, "text": self.text}
        return part | {"annotations": [], "logprobs": self.logprobs} if self.kind is MESSAGE else part

    def item(self) -> OutputItem:
        """The item so far; without content while it is in progress."""
        item: Any = {"id": self.id, "type": self.kind.type, "status": self.status}
        if self.kind.part is None:
            item |= self.call | {self.kind.key: self.text}
        else:
            content = [] if self.status == "in_progress" else [self.part()]
            head: dict[str, Any] = {"summary": []} if self.kind is REASONING else {"role": "assistant"}
            item |= head | {"content": content}
        output_item: OutputItem = item
        return output_item


def call_of(call: dict[str, Any]) -> tuple[Kind, str, str]:
    """Kind, name and text of a tool call of a chat, or of a piece of one; what a piece lacks is empty."""
    if called := call.get("custom"):
        return CUSTOM_CALL, called.get("name") or "", called.get("input") or ""
    called = call.get("function") or {}
    return FUNCTION_CALL, called.get("name") or "", called.get("arguments") or ""


def spelling(text: str, tokens: Sequence[tuple[str, L]]) -> list[L]:
    """What stands for those of `tokens` that spell `text`: an answer has tokens of reasoning and calls as well.

    Of all of them where the text cannot be found, which happens where a character has several tokens.
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
    """A token of a chat's `logprobs`, with its bytes in any case."""
    return {**_top_logprob(token), "top_logprobs": [_top_logprob(other) for other in token["top_logprobs"]]}


def _top_logprob(token: dict[str, Any]) -> TopLogprob:
    return {"token": token["token"], "bytes": token.get("bytes") or [], "logprob": token["logprob"]}


MARK = secrets.token_hex(16)
"""Stands for logprobs, followed by a number. No client knows it, and none ever sees it."""
PLACE = re.compile(rb'"logprobs":"%s(\d+)"' % MARK.encode())
"""Quotes inside of a text are escaped, so this can only be a member."""
NEW = 0
"""The number that stands for the tokens of the latest delta; those of an item are its place and one."""


class Logprobs:
    """Those of one stream."""

    def __init__(self) -> None:
        self._tokens: list[tuple[str, bytes]] = []
        self._new: list[bytes] = []
        self._texts: dict[int, bytes] = {}

    def add(self, tokens: Sequence[dict[str, Any]]) -> int:
        """Takes tokens of a chat. Gives the bytes that they are kept in."""
        encoded = [(token["token"], json_bytes(logprob(token))) for token in tokens]
        self._tokens += encoded
        self._new += (text for _, text in encoded)
        return sum(len(text) for _, text in encoded)

    def of_delta(self) -> str:
        """What stands for the tokens that have come since the last delta."""
        self._texts[NEW] = b",".join(self._new)
        self._new = []
        return f"{MARK}{NEW}"

    def pass_over(self) -> None:
        """The tokens that have come spell no text of the answer."""
        self._new = []

    def of(self, item: ItemBuilder) -> str:
        """What stands for the tokens that spell the text of `item`. Those of thoughts before it are let go."""
        self._texts[item.index + 1] = b",".join(spelling(item.text, self._tokens))
        self._tokens = []
        return f"{MARK}{item.index + 1}"

    def put_into(self, event: bytes) -> bytes:
        """`event` with logprobs where something stands for them."""
        return PLACE.sub(lambda match: b'"logprobs":[%s]' % self._texts[int(match[1])], event)
