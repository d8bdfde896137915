"""Token ids that clients send instead of texts: read back as the text that they came from.

Ids mean nothing without the tokenizer that made them, and nothing in a request says which that was. So they are
decoded, and what comes out is tokenised again: ids that do not come back are of another tokenizer, and are refused.
A vector of some other text would be worse than an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contract.errors import INVALID_REQUEST, ApiError

INSTEAD = "send the text itself (LangChain: `check_embedding_ctx_length=False`)"


class TokenIds:
    """The way back from ids to texts.

    Args:
        model_id: for sentences of errors.
        tokenizer: of the `tokenizers` library, of the model itself.
    """

    def __init__(self, model_id: str, tokenizer: Any) -> None:
        self._model_id = model_id
        # A copy: that of the model cuts at its window, and these ids must come back whole.
        self._tokenizer = type(tokenizer).from_str(tokenizer.to_str())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._vocabulary = self._tokenizer.get_vocab_size(with_added_tokens=True)
        framed = self._tokenizer.encode("a")
        plain = len(self._tokenizer.encode("a", add_special_tokens=False).ids)
        before = next((at for at, special in enumerate(framed.special_tokens_mask) if not special), 0)
        self._head, self._tail = framed.ids[:before], framed.ids[before + plain :]

    def text(self, ids: Sequence[int], place: str) -> str:
        """The text of `ids`, with or without the special tokens around it.

        Raises INVALID_REQUEST for ids that this tokenizer does not make; `place` is theirs in the request.
        """
        if (largest := max(ids)) >= self._vocabulary:
            raise self._refusal(f"token id {largest} of {place} is beyond the {self._vocabulary} ids of")
        inner = self._unframed(list(ids))
        text: str = self._tokenizer.decode(inner, skip_special_tokens=False)
        if not inner or self._tokenizer.encode(text, add_special_tokens=False).ids != inner:
            raise self._refusal(f"the token ids of {place} are not from the tokenizer of")
        return text

    def _unframed(self, ids: list[int]) -> list[int]:
        """Without the special tokens that the tokenizer puts around a text."""
        head, tail = len(self._head), len(self._tail)
        is_framed = len(ids) >= head + tail and ids[:head] == self._head and ids[len(ids) - tail :] == self._tail
        return ids[head : len(ids) - tail] if is_framed else ids

    def _refusal(self, what: str) -> ApiError:
        return INVALID_REQUEST(f"{what} `{self._model_id}`; {INSTEAD}", param="input")
