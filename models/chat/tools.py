"""Calls of tools: joined from deltas, and those of custom tools put back from the functions that engines know."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from contract.chat.tools import INPUT


def restore_custom_call(call: dict[str, Any], custom: Collection[str]) -> dict[str, Any]:
    """`call` of a finished answer in the form of its tool. `custom` are the names of the client's custom tools."""
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    if name not in custom:
        return call
    text = _text(arguments)
    return {"id": call["id"], "type": "custom", "custom": {"name": name, "input": arguments if text is None else text}}


def joined_calls(deltas: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls of a whole message, of which a stream would send `deltas`. A call may have been cut anywhere."""
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        index, fields = delta["index"], {key: value for key, value in delta.items() if key != "index"}
        call = calls.setdefault(index, fields)
        if call is not fields:
            written = call["custom" if "custom" in call else "function"]
            for name, text in (fields.get("custom") or fields["function"]).items():
                written[name] = written.get(name, "") + text
    return [calls[index] for index in sorted(calls)]


def _text(arguments: str, *, partial: bool = False) -> str | None:
    """The text in `arguments` so far; None where they are not those of a custom tool, or not yet."""
    try:
        value = from_json(arguments, allow_partial="trailing-strings" if partial else False)
    except ValueError:
        return None
    text = value.get(INPUT) if isinstance(value, dict) else None
    return text if isinstance(text, str) else None


@dataclass
class _Call:
    arguments: str = ""
    sent_chars: int = 0


@dataclass
class CustomCalls:
    """Deltas of the tool calls of one answer; calls of the tools named in `custom` are those of custom tools."""

    custom: Collection[str]
    _open: dict[int, _Call] = field(default_factory=dict)

    def delta(self, part: dict[str, Any]) -> dict[str, Any] | None:
        """The delta that the client gets for `part` of a call; None where there is none yet."""
        index, function = part["index"], part.get("function") or {}
        begins = function.get("name") in self.custom
        if begins:
            self._open[index] = _Call()
        call = self._open.get(index)
        if call is None:
            # The first delta has the text that clients append to.
            return part | {"function": {"arguments": ""} | function} if "name" in function else part
        call.arguments += function.get("arguments") or ""
        text = (_text(call.arguments, partial=True) or "")[call.sent_chars :]
        call.sent_chars += len(text)
        if begins:
            head = {key: value for key, value in part.items() if key != "function"}
            return head | {"type": "custom", "custom": {"name": function["name"], "input": text}}
        return _more(index, text) if text else None

    def rest(self) -> Iterator[dict[str, Any]]:
        """At the end: all that the model wrote, for calls with arguments that were not those of a custom tool."""
        for index, call in self._open.items():
            if not call.sent_chars and call.arguments and _text(call.arguments) is None:
                yield _more(index, call.arguments)
        self._open.clear()


def _more(index: int, text: str) -> dict[str, Any]:
    return {"index": index, "custom": {"input": text}}
