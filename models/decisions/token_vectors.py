"""Texts as vectors of their tokens: cached by owner, and compared by MaxSim.

Clients put the same questions to one text after the other, so the vectors of options are cached. Each owner has entries
of its own, so that response times do not show what another owner asks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from models.decisions.phrases import Phrase

if TYPE_CHECKING:
    from cachetools import LRUCache

CACHED_TOKENS = 20_000
"""Bounds the tokens in the cache, of all owners together: 31 MB where a vector has 384 dimensions."""

LENGTH_GAIN = 0.065
"""By this much a text of twice as many tokens is liker to a false statement: of 500 to 2,000 tokens, from texts of the
evaluation set that stood one after the other."""


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """A phrase that was read.

    Attributes:
        vectors: one for each token of the text, float32 [tokens, dimensions], of length 1.
        tokens: number of tokens of the text, without the special tokens around each window.
        windows: number of windows that it was read in.
    """

    vectors: Any
    tokens: int
    windows: int


class TokenVectorCache:
    """Phrases that were read, by owner; the least recently used are evicted. Used from one event loop."""

    def __init__(self, most_tokens: int = CACHED_TOKENS) -> None:
        from cachetools import LRUCache

        self._entries: LRUCache[tuple[str, Phrase], TokenVectors] = LRUCache(
            most_tokens, lambda entry: len(entry.vectors)
        )

    def get(self, owner: str, phrases: Iterable[Phrase]) -> dict[Phrase, TokenVectors]:
        return {phrase: self._entries[owner, phrase] for phrase in phrases if (owner, phrase) in self._entries}

    def put(self, owner: str, entries: Mapping[Phrase, TokenVectors]) -> None:
        for phrase, entry in entries.items():
            with suppress(ValueError):  # one that is larger than the cache is not stored
                self._entries[owner, phrase] = entry


def max_sim(text: Any, state: Any) -> float:
    """The mean, over the tokens of `text`, of the best cosine with any token of `state`."""
    return float((text @ state.T).max(1).mean())


def max_sim_both_ways(text: Any, other: Any) -> float:
    """The mean of MaxSim in both directions."""
    cosines = text @ other.T
    return float(cosines.max(1).mean() + cosines.max(0).mean()) / 2


def expected_max_sim(text: Any, ordinary: Any, tokens: int) -> float:
    """The mean MaxSim of `text` with `tokens` tokens of ordinary texts: a long text is liker to anything.

    Where `ordinary` has fewer tokens, what more of them would have added is estimated.
    """
    length = min(tokens, len(ordinary))
    pieces = len(ordinary) // length
    cosines = (text @ ordinary[: pieces * length].T).reshape(len(text), pieces, length)
    return float(cosines.max(2).mean()) + LENGTH_GAIN * math.log2(max(1.0, tokens / length))
