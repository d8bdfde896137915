"""Text of clients as plain text for one tokenizer: whatever it spells, no control token comes out of it.

ids(text)        token ids, for prompts that are put together as tokens
spoken(text)     a text that tokenizes without control tokens, for prompts that vLLM's code puts together as text
cut(text, mark)  the same text with `mark` inside whatever spells one, or begins to at its end, for a tokenizer that
                 takes texts apart there
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

JOINER = "\u2060"
"""Takes no room and says nothing: parts what would spell a control token."""


class PlainText:
    """What clients send, made harmless for `tokenizer` (Hugging Face)."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.control_ids = frozenset(tokenizer.get_added_vocab().values()) | frozenset(tokenizer.all_special_ids)
        spelled = {*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens} - {""}
        self._control = re.compile(_starting(spelled)) if spelled else None
        self._begun = re.compile(_starting(spelled, ended=r"\s*\Z")) if spelled else None

    def ids(self, text: str) -> list[int]:
        """`text` as ordinary tokens; what spells a control token is cut after its first character."""
        ids: list[int] = []
        for piece in self.pieces(text):
            ids += self.encode(piece)
        # A tokenizer may normalise what no pattern foresees; whatever slips through is left out.
        return [token for token in ids if token not in self.control_ids]

    def spoken(self, text: str) -> str:
        """`text` itself, or where it spells a control token, the same with something invisible in between."""
        parted = JOINER.join(self.pieces(text))
        ids = self.encode(parted)
        if self.control_ids.isdisjoint(ids):
            return parted
        plain: str = self._tokenizer.decode([token for token in ids if token not in self.control_ids])
        return plain

    def cut(self, text: str, mark: str) -> str:
        """`text` itself, or where it spells a control token, the same with `mark` after the first character of that.

        What only begins one counts at the end of `text`: a template may go on with the rest, and cut white space off.
        """
        return self._begun.sub(lambda found: found[0] + mark, text) if self._begun else text

    def encode(self, text: str) -> list[int]:
        """`text` as the tokenizer has it, control tokens and all."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def pieces(self, text: str) -> list[str]:
        """`text` cut after the first character of whatever spells a control token."""
        pieces, start = [], 0
        for found in self._control.finditer(text) if self._control else ():
            pieces.append(text[start : found.end()])
            start = found.end()
        return [*pieces, text[start:]]


def _starting(words: Iterable[str], ended: str = "") -> str:
    """A pattern for the first character of any of `words`, where one begins, or is begun before the pattern `ended`.

    A tree, not a list: some tokenizers have six thousand control tokens, and at every `<` a list is tried to its end.
    """
    return "|".join(
        # Signs begin control tokens. A letter says nothing, and in a run of white space each would look for the end.
        f"{re.escape(first)}(?={_any(rests, '' if first.isspace() or first.isalnum() else ended)})"
        for first, rests in sorted(_by_first(words).items())
    )


def _any(words: set[str], ended: str) -> str:
    """A pattern that matches where one of `words` begins, or ends early; an empty one always does."""
    if "" in words:
        return ""
    tree = [re.escape(first) + _any(rests, ended) for first, rests in sorted(_by_first(words).items())]
    return "(?:" + "|".join([*tree, ended] if ended else tree) + ")"


def _by_first(words: Iterable[str]) -> dict[str, set[str]]:
    """What follows each first character."""
    found: dict[str, set[str]] = {}
    for word in words:
        found.setdefault(word[0], set()).add(word[1:])
    return found
