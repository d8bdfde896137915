"""Inputs longer than the window are cut at their top, and images are kept or dropped whole. Needs vLLM.

text alone    cut where it has become tokens: `CutAtTop` of `models.llm.vllm_internals`
with images   cut once each placeholder has become as many tokens as its image has: `cut_expanded`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from vllm.inputs import tokens_input
from vllm.tokenizers import TokenizerLike

from contract.errors import INVALID_REQUEST
from models.llm.vllm_internals.serving import CutAtTop


def cut_expanded(prompt: Any, params: CutAtTop, tokenizer: TokenizerLike | None) -> Any:
    """`prompt`, an input of the engine with images as tokens, cut at its top.

    An image that does not fit whole is dropped. Raises INVALID_REQUEST for one that could not fit if it were alone.
    """
    tokens = prompt["prompt_token_ids"]
    first, start = params.keeps(tokenizer, tokens)
    if not start:
        return prompt
    left = len(tokens) - start
    for begin, end in _images(prompt, first, tokenizer):
        if begin >= start:
            break
        if end - begin > left:
            raise INVALID_REQUEST(
                f"an image takes {end - begin} tokens, but only {left} fit into the window beside the answer; "
                "send a smaller image, or request a shorter answer",
                param="messages",
            )
        start = max(start, end)
    params.cut.tokens = start - first
    return _without(prompt, first, start)


def _images(prompt: Any, first: int, tokenizer: TokenizerLike | None) -> Iterator[tuple[int, int]]:
    """Returns the span of each image, in their order, with the control tokens that its template put on each side."""
    tokens = prompt["prompt_token_ids"]
    control = set(tokenizer.all_special_ids) if tokenizer is not None else set()
    spans = sorted(
        (span.offset, span.offset + span.length) for kind in prompt["mm_placeholders"].values() for span in kind
    )
    last_end = first
    for (begin, end), (following, _) in zip_longest(spans, spans[1:], fillvalue=(len(tokens), 0)):
        yield (
            begin - (begin > last_end and tokens[begin - 1] in control),
            last_end := end + (end < following and tokens[end] in control),
        )


def _without(prompt: Any, first: int, start: int) -> Any:
    """`prompt` without its tokens from `first` to `start`, and without the images among them."""
    ids = prompt["prompt_token_ids"][:first] + prompt["prompt_token_ids"][start:]
    spans, hashes, items = prompt["mm_placeholders"], prompt["mm_hashes"], prompt["mm_kwargs"]
    remaining = {kind: [i for i, span in enumerate(of) if span.offset >= start] for kind, of in spans.items()}
    if not any(remaining.values()):
        return tokens_input(ids, cache_salt=prompt.get("cache_salt")) | {"arrival_time": prompt["arrival_time"]}
    # An image that comes twice has its pixels once, perhaps in the part that is cut.
    pixels = {
        hashes[kind][i]: item for kind, several in items.items() for i, item in enumerate(several) if item is not None
    }
    return prompt | {
        "prompt_token_ids": ids,
        "mm_placeholders": {
            kind: [replace(spans[kind][i], offset=spans[kind][i].offset - (start - first)) for i in indices]
            for kind, indices in remaining.items()
        },
        "mm_hashes": {kind: [hashes[kind][i] for i in indices] for kind, indices in remaining.items()},
        "mm_kwargs": type(items)(
            {kind: [pixels.get(hashes[kind][i]) for i in indices] for kind, indices in remaining.items()}
        ),
    }


def dropped(before: Any, after: Any) -> set[str]:
    """Hashes of the images that `after` lacks."""

    def of(prompt: Any) -> set[str]:
        return {name for hashes in prompt.get("mm_hashes", {}).values() for name in hashes}

    return of(before) - of(after)


def newest(messages: list[Any], most_chars: int) -> list[Any]:
    """`messages` without the text and the images that are followed by `most_chars` of text, from the last one back.

    Calls of tools that do not fit are dropped, too.
    """
    left = most_chars
    shortened = []
    for message in reversed(messages):
        called = sum(len(call["function"]["arguments"]) for call in message.get("tool_calls") or ())
        if called > left:
            message = message | {"tool_calls": None}
        left = max(left - called, 0)
        content = message["content"]
        parts = []
        for part in reversed(content if isinstance(content, list) else [{"type": "text", "text": content}]):
            if part["type"] == "text":
                text = part["text"][-left:] if left else ""
                left -= len(text)
                parts.append(part | {"text": text})
            elif left:
                parts.append(part)
        shortened.append(message | {"content": parts[::-1] if isinstance(content, list) else parts[0]["text"]})
    return shortened[::-1]
