"""Inputs longer than the window are cut at their top, and images are kept or dropped whole. Spec 4. Needs vLLM.

text alone    cut where it has become tokens: `CutAtTop`
with images   a placeholder of one token becomes as many as its image has, so that is awaited: `cut_expanded`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from vllm.inputs import tokens_input
from vllm.renderers import TokenizeParams
from vllm.tokenizers import TokenizerLike

from contract.errors import INVALID_REQUEST

Message = Mapping[str, Any]


@dataclass
class Cut:
    """How many tokens one input lost. Of a text many times the window, what is never made tokens is not counted."""

    tokens: int = 0


@dataclass(frozen=True)
class CutAtTop(TokenizeParams):
    """Tokenising that cuts an input longer than the window at its top.

    `reserve` tokens stay free for the answer, where vLLM would leave one. A begin-of-text token stays first: some
    models are lost without it. `cut` is filled.
    """

    reserve: int = 1
    cut: Cut = field(default_factory=Cut)

    def keeps(self, tokenizer: TokenizerLike | None, tokens: list[int]) -> tuple[int, int]:
        """How many tokens stay at the beginning, and from which one on the others stay."""
        window = self.max_total_tokens
        if window is None or len(tokens) < window:
            return 0, 0
        first = 1 if tokenizer is not None and tokens[0] == tokenizer.bos_token_id else 0
        return first, len(tokens) - (window - self.reserve - first)

    def apply_pre_tokenization(self, tokenizer: TokenizerLike | None, prompt: Any) -> Any:
        """As vLLM's, which cuts a text many times the window; one with images has been cut before: `newest`."""
        return prompt if prompt.get("multi_modal_data") else super().apply_pre_tokenization(tokenizer, prompt)

    def apply_post_tokenization(self, tokenizer: TokenizerLike | None, prompt: Any) -> Any:
        """As vLLM's, which cuts; images are not tokens yet."""
        return prompt if prompt.get("multi_modal_data") else super().apply_post_tokenization(tokenizer, prompt)

    def _token_truncation(self, tokenizer: TokenizerLike | None, tokens: Any) -> Any:
        first, start = self.keeps(tokenizer, tokens)
        self.cut.tokens = max(0, start - first)
        return tokens[:first] + tokens[start:] if start else tokens

    def _truncation_slice(self, tokenizer: TokenizerLike | None, length: int) -> slice | None:
        # What vLLM would cut after an image has become tokens; it refuses where an image does not fit.
        return None


def cut_expanded(prompt: Any, params: CutAtTop, tokenizer: TokenizerLike | None) -> Any:
    """`prompt`, an input of the engine whose images have become tokens, cut at its top.

    An image that does not fit whole is dropped. Raises INVALID_REQUEST for one that could not fit if it were alone.
    """
    tokens = prompt["prompt_token_ids"]
    first, start = params.keeps(tokenizer, tokens)
    if not start:
        return prompt
    room = len(tokens) - start
    for begin, end in _images(prompt, first, tokenizer):
        if begin >= start:
            break
        if end - begin > room:
            raise INVALID_REQUEST(
                f"an image takes {end - begin} tokens, but only {room} fit into the window beside the answer; "
                "send a smaller image, or request a shorter answer",
                param="messages",
            )
        start = max(start, end)
    params.cut.tokens = start - first
    return _without(prompt, first, start)


def _images(prompt: Any, first: int, tokenizer: TokenizerLike | None) -> Iterator[tuple[int, int]]:
    """Where each image begins and ends, in their order, with the control token that its template put on each side."""
    tokens = prompt["prompt_token_ids"]
    control = set(tokenizer.all_special_ids) if tokenizer is not None else set()
    places = sorted(
        (one.offset, one.offset + one.length) for kind in prompt["mm_placeholders"].values() for one in kind
    )
    taken = first
    for (begin, end), (following, _) in zip_longest(places, places[1:], fillvalue=(len(tokens), 0)):
        yield (
            begin - (begin > taken and tokens[begin - 1] in control),
            taken := end + (end < following and tokens[end] in control),
        )


def _without(prompt: Any, first: int, start: int) -> Any:
    """`prompt` without its tokens from `first` to `start`, and without the images among them."""
    ids = prompt["prompt_token_ids"][:first] + prompt["prompt_token_ids"][start:]
    places, hashes, items = prompt["mm_placeholders"], prompt["mm_hashes"], prompt["mm_kwargs"]
    kept = {kind: [i for i, one in enumerate(ranges) if one.offset >= start] for kind, ranges in places.items()}
    if not any(kept.values()):
        return tokens_input(ids, cache_salt=prompt.get("cache_salt")) | {"arrival_time": prompt["arrival_time"]}
    # An image that comes twice has its pixels once, maybe with what is cut.
    pixels = {
        hashes[kind][i]: item for kind, several in items.items() for i, item in enumerate(several) if item is not None
    }
    return prompt | {
        "prompt_token_ids": ids,
        "mm_placeholders": {
            kind: [replace(places[kind][i], offset=places[kind][i].offset - (start - first)) for i in indices]
            for kind, indices in kept.items()
        },
        "mm_hashes": {kind: [hashes[kind][i] for i in indices] for kind, indices in kept.items()},
        "mm_kwargs": type(items)(
            {kind: [pixels.get(hashes[kind][i]) for i in indices] for kind, indices in kept.items()}
        ),
    }


def dropped(before: Any, after: Any) -> set[str]:
    """Hashes of the images that `after` lacks."""

    def of(prompt: Any) -> set[str]:
        return {one for hashes in prompt.get("mm_hashes", {}).values() for one in hashes}

    return of(before) - of(after)


def has_images(messages: Iterable[Message]) -> bool:
    """Whether a message has an image."""
    return any(isinstance(message.get("content"), list) for message in messages)


def newest(messages: list[Any], most_chars: int) -> list[Any]:
    """`messages` without the text and the images that are followed by `most_chars` of text, from the last one back."""
    room = most_chars
    kept = []
    for message in reversed(messages):
        content = message["content"]
        parts = []
        for part in reversed(content if isinstance(content, list) else [{"type": "text", "text": content}]):
            if part["type"] == "text":
                text = part["text"][-room:] if room else ""
                room -= len(text)
                parts.append(part | {"text": text})
            elif room:
                parts.append(part)
        kept.append(message | {"content": parts[::-1] if isinstance(content, list) else parts[0]["text"]})
    return kept[::-1]
