"""A chat engine that plays a script, for tests of wires: the last message says in JSON what the model answers.

    {"content": "Hello", "reasoning_content": "Hm", "tool_calls": [...], "finish_reason": "length", "logprobs": true}

A message of a tool is answered with its own text. Streams come in pieces of `piece` characters, 3 unless told.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

from contract.catalog import Model
from contract.chat.engine import ChatBatch, ChatJob, ChatReply
from contract.events import event
from contract.tokens import Tokenized, TokenizeJob

HEAD: dict[str, Any] = {"id": "chatcmpl-1", "created": 1, "model": "scripted"}
PROMPT_TOKENS = 7


class ScriptedChat:
    """Plays what it is told. `jobs` are those that it was asked."""

    def __init__(self, model: Model, path: Path | None) -> None:
        self.model = model
        self.jobs: list[ChatJob] = []

    async def complete(self, job: ChatJob) -> ChatReply:
        """The whole script."""
        self.jobs.append(job)
        return reply(_script(job))

    async def stream(self, job: ChatJob) -> AsyncGenerator[ChatBatch, None]:
        """The script in pieces."""
        self.jobs.append(job)
        script = _script(job)
        chunks = list(pieces(script, int(script.get("piece", 3))))
        for batch in batches(chunks, script):
            yield batch

    async def tokenize(self, job: TokenizeJob) -> Tokenized:
        """A token for each word."""
        assert job.request
        return Tokenized(list(range(sum(len(text.split()) for text in job.request.texts()))))

    async def check_health(self) -> None:
        pass

    def close(self) -> None:
        pass


def reply(script: dict[str, Any]) -> ChatReply:
    """The script as a whole answer."""
    names = ("content", "reasoning_content", "tool_calls")
    message = {"role": "assistant", "content": None} | {name: script[name] for name in names if script.get(name)}
    choice: Any = {
        "index": 0,
        "message": message,
        "finish_reason": script.get("finish_reason", "stop"),
        "logprobs": {"content": tokens(script.get("content", ""))} if script.get("logprobs") else None,
    }
    body: Any = HEAD | {"object": "chat.completion", "choices": [choice], "usage": _usage(script)}
    return ChatReply(body, PROMPT_TOKENS, _length(script), **_counts(script))


def pieces(script: dict[str, Any], size: int) -> Iterator[dict[str, Any]]:
    """Deltas of the script, so many characters each: first the thoughts, then the text, then the calls."""
    for name in ("reasoning_content", "content"):
        text = script.get(name) or ""
        for start in range(0, len(text), size):
            yield {name: text[start : start + size]}
    for index, call in enumerate(script.get("tool_calls") or ()):
        yield {"tool_calls": [call_piece(index, call)]}
        kind, key = called(call)
        text = call[kind][key]
        for start in range(0, len(text), size):
            yield {"tool_calls": [{"index": index, kind: {key: text[start : start + size]}}]}


def called(call: dict[str, Any]) -> tuple[str, str]:
    """Where the text of a call stands."""
    return ("custom", "input") if call["type"] == "custom" else ("function", "arguments")


def call_piece(index: int, call: dict[str, Any]) -> dict[str, Any]:
    """The first piece of a call: all but its text."""
    kind, _ = called(call)
    return {"index": index, "id": call["id"], "type": call["type"], kind: {"name": call[kind]["name"]}}


def batches(deltas: list[dict[str, Any]], script: dict[str, Any]) -> Iterator[ChatBatch]:
    """A batch for each delta, the role before and the token counts after them."""
    counts = _counts(script)
    ending: list[tuple[dict[str, Any], str | None]] = [({}, script.get("finish_reason", "stop"))]
    for count, (delta, reason) in enumerate([({"role": "assistant", "content": ""}, None), *zip_none(deltas), *ending]):
        said = tokens(delta.get("content") or "") if script.get("logprobs") else []
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": {"content": said} if said else None}
        yield ChatBatch(event(_chunk([choice])), PROMPT_TOKENS, count, **counts)
    yield ChatBatch(event(_chunk([]) | {"usage": _usage(script)}), PROMPT_TOKENS, _length(script), **counts)


def zip_none(deltas: list[dict[str, Any]]) -> list[tuple[dict[str, Any], None]]:
    """Each delta with no reason to finish."""
    return [(delta, None) for delta in deltas]


def tokens(text: str) -> list[dict[str, Any]]:
    """A token for each character."""
    return [
        {"token": c, "bytes": list(c.encode()), "logprob": -0.5, "top_logprobs": [{"token": c, "logprob": -0.5}]}
        for c in text
    ]


def _chunk(choices: list[Any]) -> dict[str, Any]:
    return HEAD | {"object": "chat.completion.chunk", "choices": choices}


def _usage(script: dict[str, Any]) -> dict[str, Any]:
    length = _length(script)
    details = {"reasoning_tokens": len(script.get("reasoning_content") or "")}
    counts = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": length, "total_tokens": PROMPT_TOKENS + length}
    return counts | {"completion_tokens_details": details}


def _counts(script: dict[str, Any]) -> dict[str, int]:
    return {name: script.get(name, 0) for name in ("cached_tokens", "cut_tokens")}


def _length(script: dict[str, Any]) -> int:
    return len(script.get("content") or "") + len(script.get("reasoning_content") or "")


def _script(job: ChatJob) -> dict[str, Any]:
    last = job.request.messages[-1]
    text = "".join(part.text or "" for part in last.content or ())
    script: dict[str, Any] = {"content": text} if last.role == "tool" else json.loads(text)
    return script
