"""Texts as token ids, for encoders.

A text that is far longer than the window is cut before it is made tokens, because each takes memory. Texts are made
tokens a few at a time, and owners take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from concurrency.background import to_its_end
from concurrency.semaphore import FairSemaphore
from contract.limits import CHARS_PER_TOKEN

INLINE_CHARS = 1_000
"""Texts of that many characters together are tokenised in the event loop: a thread would take longer to start.

It takes 1 ms. WordPiece takes the square of a word's length, so words of a hundred digits take 10.
"""

SLICE_CHARS = 32 * 1024
"""Characters of the texts that are tokenised in one turn: 15 ms, and 270 for words of a hundred digits."""

CONCURRENT_SLICES = 2
"""Slices that are tokenised at the same time, one of each owner."""

S = TypeVar("S", bound=str | Sequence[int])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Ids of one text or pair, special tokens included.

    Attributes:
        segments: distinguishes the two texts of a pair.
        cut: number of tokens beyond the window, in the part that was made tokens.
    """

    ids: list[int]
    segments: list[int]
    cut: int = 0

    def __len__(self) -> int:
        return len(self.ids)


class WindowTokenizer:
    """A tokenizer that cuts texts at a window.

    Attributes:
        tokenizer: of the `tokenizers` library.
        window: tokens of one text that are read; a longer text is cut at its end.
        most_chars: characters of one text that are made tokens.
    """

    def __init__(self, tokenizer: Any, window: int) -> None:
        self.window, self.most_chars = window, window * CHARS_PER_TOKEN
        self.tokenizer = tokenizer
        # Files may carry a truncation and a fixed padding of their own; both would be applied silently.
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(window, strategy="longest_first", direction="right")
        self._slots = FairSemaphore(CONCURRENT_SLICES)

    async def encode(self, texts: Sequence[str], owner: str = "") -> list[Tokens]:
        return [item async for items in self.encoded(texts, owner) for item in items]

    def encoded(self, texts: Sequence[str], owner: str = "") -> AsyncIterator[list[Tokens]]:
        """The same a slice at a time, for callers that may stop after one."""
        return self.slices(self._encode, [text[: self.most_chars] for text in texts], owner)

    async def pairs(self, query: str, documents: Sequence[str], owner: str = "") -> list[Tokens]:
        """Token ids of `query` with each document; the query is made tokens once."""
        (first,) = await self._all(self._bare, [query[: self.most_chars]], owner)
        cut = [document[: self.most_chars] for document in documents]
        return await self._all(lambda part: [self._pair(first, second) for second in self._bare(part)], cut, owner)

    async def windows(self, texts: Sequence[str], owner: str = "") -> list[list[Tokens]]:
        """Token ids of each text whole, in as many windows as it takes."""
        return await self._all(self._windows, texts, owner)

    async def slices(
        self, work: Callable[[Sequence[S]], list[T]], texts: Sequence[S], owner: str
    ) -> AsyncIterator[list[T]]:
        """The results of `work` on `texts`, a slice at a time: in a thread, and in turn, where that takes long.

        Where the caller is cancelled or stops, no further slice is made.
        """
        is_short = sum(map(_chars, texts)) <= INLINE_CHARS
        for part in _sliced(texts):
            yield work(part) if is_short else await self._in_turn(work, part, owner)

    async def _all(self, work: Callable[[Sequence[str]], list[T]], texts: Sequence[str], owner: str) -> list[T]:
        return [result async for results in self.slices(work, texts, owner) for result in results]

    async def _in_turn(self, work: Callable[[Sequence[S]], list[T]], part: Sequence[S], owner: str) -> list[T]:
        async with self._slots.of(owner):
            return await to_its_end(asyncio.to_thread(work, part))

    def _encode(self, texts: Sequence[str]) -> list[Tokens]:
        return [Tokens(text.ids, text.type_ids, _cut(text)) for text in self.tokenizer.encode_batch_fast(texts)]

    def _bare(self, texts: Sequence[str]) -> list[Any]:
        """Encodings without special tokens."""
        return list(self.tokenizer.encode_batch_fast(texts, add_special_tokens=False))

    def _pair(self, first: Any, second: Any) -> Tokens:
        """The pair, its longer text cut at its end to fit the window; where neither is short, both are cut."""
        pair = self.tokenizer.post_process(first, second)
        return Tokens(pair.ids, pair.type_ids)

    def _windows(self, texts: Sequence[str]) -> list[list[Tokens]]:
        encoded = self.tokenizer.encode_batch_fast(texts)
        return [[Tokens(part.ids, part.type_ids) for part in (text, *text.overflowing)] for text in encoded]


def _chars(text: str | Sequence[int]) -> int:
    """Returns the number of characters of a text; an estimate if it comes as token ids."""
    return len(text) if isinstance(text, str) else len(text) * CHARS_PER_TOKEN


def _sliced(texts: Sequence[S]) -> Iterator[list[S]]:
    """All of `texts` in order, in slices of about SLICE_CHARS characters."""
    slice: list[S] = []
    chars = 0
    for text in texts:
        slice.append(text)
        chars += _chars(text)
        if chars >= SLICE_CHARS:
            yield slice
            slice, chars = [], 0
    if slice:
        yield slice


def _cut(text: Any) -> int:
    """Tokens that did not fit; the pieces that were cut off have special tokens of their own."""
    return sum(len(piece) - sum(piece.special_tokens_mask) for piece in text.overflowing)
