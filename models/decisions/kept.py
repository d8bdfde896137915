"""Token vectors of options that were read before: clients put the same questions to one text after the other.

They are kept for each owner apart, so that nobody can tell by the time it takes what another one asks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from models.decisions.phrases import Phrase

KEPT_TOKENS = 20_000
"""Of all owners together: 31 MB where a vector has 384 dimensions."""


@dataclass(frozen=True, slots=True)
class Text:
    """A phrase that was read.

    Attributes:
        vectors: one of each token of the text, float32 [tokens, dimensions], of length 1.
        tokens: of the text, without the marks around each window.
        windows: that it was read in.
    """

    vectors: Any
    tokens: int
    windows: int


class Kept:
    """Texts by owner; those that were not asked for longest go first. Used from one event loop."""

    def __init__(self, most_tokens: int = KEPT_TOKENS) -> None:
        self._most_tokens = most_tokens
        self._tokens = 0
        self._texts: OrderedDict[tuple[str, Phrase], Text] = OrderedDict()

    def known(self, owner: str, phrases: Iterable[Phrase]) -> dict[Phrase, Text]:
        """Those of `phrases` that are kept for `owner`."""
        found = {phrase: self._texts[owner, phrase] for phrase in phrases if (owner, phrase) in self._texts}
        for phrase in found:
            self._texts.move_to_end((owner, phrase))
        return found

    def keep(self, owner: str, texts: Mapping[Phrase, Text]) -> None:
        """Keeps them as long as there is room."""
        for phrase, text in texts.items():
            if (owner, phrase) not in self._texts:
                self._texts[owner, phrase] = text
                self._tokens += len(text.vectors)
        while self._tokens > self._most_tokens:
            _, gone = self._texts.popitem(last=False)
            self._tokens -= len(gone.vectors)
