"""Text of clients as plain text for one tokenizer: whatever it spells, no control token comes out of it.

ids(text)     token ids, for prompts that are put together as tokens
spoken(text)  a text that tokenizes without control tokens, for prompts that vLLM's code puts together as text
"""

from __future__ import annotations

import re
from typing import Any

JOINER = "\u2060"
"""Takes no room and says nothing: parts what would spell a control token."""


class PlainText:
    """What clients send, made harmless for `tokenizer` (Hugging Face)."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.control_ids = frozenset(tokenizer.get_added_vocab().values()) | frozenset(tokenizer.all_special_ids)
        spelled = sorted({*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens}, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, spelled))) if spelled else None

    def ids(self, text: str) -> list[int]:
        """`text` as ordinary tokens; what spells a control token is cut after its first character."""
        ids: list[int] = []
        for piece in self._pieces(text):
            ids += self.encode(piece)
        # A tokenizer may normalise what no pattern foresees; whatever slips through is left out.
        return [token for token in ids if token not in self.control_ids]

    def spoken(self, text: str) -> str:
        """`text` itself, or where it spells a control token, the same with something invisible in between."""
        parted = JOINER.join(self._pieces(text))
        ids = self.encode(parted)
        if self.control_ids.isdisjoint(ids):
            return parted
        plain: str = self._tokenizer.decode([token for token in ids if token not in self.control_ids])
        return plain

    def encode(self, text: str) -> list[int]:
        """`text` as the tokenizer has it, control tokens and all."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _pieces(self, text: str) -> list[str]:
        pieces, start = [], 0
        while self._control and (found := self._control.search(text, start)):
            pieces.append(text[start : found.start() + 1])
            start = found.start() + 1
        return [*pieces, text[start:]]
