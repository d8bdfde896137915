"""Texts as token ids, for encoders.

A text that is far longer than the window is cut before it is made tokens, because each takes memory. Texts are made
tokens a few at a time, and owners take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from concurrency.semaphore import FairSemaphore
from contract.limits import CHARS_PER_TOKEN

INLINE_CHARS = 1_000
"""Texts of so many characters together are tokenised in the event loop: a thread would take longer to start.

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
        segments: tells the two texts of a pair apart.
        cut: number of tokens beyond the window, in the part that was made tokens.
    """

    ids: list[int]
    segments: list[int]
    cut: int = 0

    def __len__(self) -> int:
        return len(self.ids)


SpecialTokens = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids of special tokens, and their segments."""


@dataclass(frozen=True, slots=True)
class PairFrame:
    """What a tokenizer puts before, between and behind two texts that are read together, and the segment of each."""

    before: SpecialTokens
    between: SpecialTokens
    behind: SpecialTokens
    segments: tuple[int, int]

    @classmethod
    def of(cls, tokenizer: Any) -> PairFrame:
        """The frame of `tokenizer`, read off a pair of texts."""
        pair = tokenizer.encode("a", "a")
        sequences, segments = pair.sequence_ids, pair.type_ids
        first, second = sequences.index(0), sequences.index(1)
        ends = first + sequences.count(0), second + sequences.count(1)

        def special(start: int, end: int) -> SpecialTokens:
            return tuple(pair.ids[start:end]), tuple(segments[start:end])

        return cls(
            before=special(0, first),
            between=special(ends[0], second),
            behind=special(ends[1], len(sequences)),
            segments=(segments[first], segments[second]),
        )

    def around(self, first: list[int], second: list[int], window: int) -> Tokens:
        """The pair, its longer text cut at its end to fit `window`; where neither is short, both are cut."""
        room = window - sum(len(ids) for ids, _ in (self.before, self.between, self.behind))
        short = min(len(first), len(second), room // 2)
        keep = (room - short, short) if len(first) > len(second) else (short, room - short)
        first, second = first[: keep[0]], second[: keep[1]]
        return Tokens(
            [*self.before[0], *first, *self.between[0], *second, *self.behind[0]],
            [
                *self.before[1],
                *[self.segments[0]] * len(first),
                *self.between[1],
                *[self.segments[1]] * len(second),
                *self.behind[1],
            ],
        )


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
        self._frame = PairFrame.of(tokenizer)
        self._slots = FairSemaphore(CONCURRENT_SLICES)

    async def encode(self, texts: Sequence[str], owner: str = "") -> list[Tokens]:
        return [item async for items in self.encoded(texts, owner) for item in items]

    def encoded(self, texts: Sequence[str], owner: str = "") -> AsyncIterator[list[Tokens]]:
        """The same a slice at a time, for callers that may stop after one."""
        return self.slices(self._encode, [text[: self.most_chars] for text in texts], owner)

    async def pairs(self, query: str, documents: Sequence[str], owner: str = "") -> list[Tokens]:
        """Token ids of `query` with each document; the query is made tokens once."""
        (first,) = await self._all(self._ids, [query[: self.most_chars]], owner)
        cut = [document[: self.most_chars] for document in documents]
        return await self._all(partial(self._pairs, first), cut, owner)

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
            working = asyncio.ensure_future(asyncio.to_thread(work, part))
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                # The thread goes on: its slot is free only once it has ended.
                await asyncio.wait([working])
                raise

    def _encode(self, texts: Sequence[str]) -> list[Tokens]:
        return [Tokens(text.ids, text.type_ids, _cut(text)) for text in self.tokenizer.encode_batch_fast(texts)]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [text.ids for text in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def _pairs(self, query: list[int], documents: Sequence[str]) -> list[Tokens]:
        return [self._frame.around(query, document, self.window) for document in self._ids(documents)]

    def _windows(self, texts: Sequence[str]) -> list[list[Tokens]]:
        encoded = self.tokenizer.encode_batch_fast(texts)
        return [[Tokens(part.ids, part.type_ids) for part in (text, *text.overflowing)] for text in encoded]


def _chars(text: str | Sequence[int]) -> int:
    """How many characters a text has; an estimate where it comes as token ids."""
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
