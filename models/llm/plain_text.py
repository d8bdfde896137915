"""Text of clients as plain text for one tokenizer: whatever it spells, no control token comes out of it.

ids(text)            token ids, for prompts that are put together as tokens
cut(text, sentinel)  the same text with `sentinel` inside whatever spells one, or begins to at its end, for a tokenizer
                     that takes texts apart there
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any


class PlainText:
    """Text of clients, made harmless for `tokenizer` (Hugging Face)."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.control_ids = frozenset(tokenizer.get_added_vocab().values()) | frozenset(tokenizer.all_special_ids)
        spelled = {*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens} - {""}
        self._control = re.compile(_starting(spelled)) if spelled else None
        self._open = re.compile(_starting(spelled, ending=r"\s*\Z")) if spelled else None

    def ids(self, text: str) -> list[int]:
        """`text` as ordinary tokens; what spells a control token is cut after its first character."""
        ids: list[int] = []
        for piece in self.pieces(text):
            ids += self.encode(piece)
        # A tokenizer may normalise what no pattern foresees; whatever slips through is left out.
        return [token for token in ids if token not in self.control_ids]

    def cut(self, text: str, sentinel: str) -> str:
        """`text` itself, or where it spells a control token, the same with `sentinel` after its first character.

        At the end of `text` the beginning of one counts, too: a template may go on with the rest, and cut white space.
        """
        return self._open.sub(lambda match: match[0] + sentinel, text) if self._open else text

    def encode(self, text: str) -> list[int]:
        """`text` as the tokenizer has it, control tokens and all."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def pieces(self, text: str) -> list[str]:
        """`text` cut after the first character of whatever spells a control token."""
        pieces, start = [], 0
        for match in self._control.finditer(text) if self._control else ():
            pieces.append(text[start : match.end()])
            start = match.end()
        return [*pieces, text[start:]]


def _starting(words: Iterable[str], ending: str = "") -> str:
    """A pattern for the first character of any of `words`, whole or cut off before the pattern `ending`.

    A tree, not a list: some tokenizers have six thousand control tokens, and at every `<` a list is tried to its end.
    """
    return "|".join(
        # Signs begin control tokens. A letter alone proves nothing, and each white space would search to the end.
        f"{re.escape(first)}(?={_any(rests, '' if first.isspace() or first.isalnum() else ending)})"
        for first, rests in sorted(_by_first(words).items())
    )


def _any(words: set[str], ending: str) -> str:
    """A pattern for one of `words`, whole or cut off; an empty word always matches."""
    if "" in words:
        return ""
    tree = [re.escape(first) + _any(rests, ending) for first, rests in sorted(_by_first(words).items())]
    return "(?:" + "|".join([*tree, ending] if ending else tree) + ")"


def _by_first(words: Iterable[str]) -> dict[str, set[str]]:
    rests: dict[str, set[str]] = {}
    for word in words:
        rests.setdefault(word[0], set()).add(word[1:])
    return rests
