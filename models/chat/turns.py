"""Messages of clients cannot forge turns: what spells a control token in them is text. Needs vLLM.

A chat template puts messages together as one text, in which nobody can tell `<|im_end|>` of the template from that of a
user. So whatever spells a control token in a message is marked first, with a mark that nobody can guess; and the
tokenizer takes the finished text apart at the marks, so that no control token is ever seen whole. Text without control
tokens has no marks, and becomes the same tokens as before.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from vllm.config import ModelConfig
from vllm.renderers.base import BaseRenderer
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.utils.mistral import is_mistral_tokenizer

from models.llm.plain_text import PlainText

OPAQUE = frozenset({"image_url"})
"""Members of a message that no template puts into its text."""


class Marks:
    """Marks control tokens in what clients send, for one tokenizer, and makes that tokenizer heed the marks.

    Args:
        tokenizer: a fast one of Hugging Face; it is changed.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._mark = secrets.token_hex(12)
        self._plain = PlainText(tokenizer)
        _take_apart(tokenizer, self._mark)

    def marked(self, value: Any) -> Any:
        """A copy of messages or tools in which every control token of every text is marked."""
        if isinstance(value, str):
            return self._plain.cut(value, self._mark)
        if isinstance(value, BaseModel):
            return self.marked(value.model_dump(exclude_none=True))
        if isinstance(value, Mapping):
            return {
                self._plain.cut(name, self._mark): inner if name in OPAQUE else self.marked(inner)
                for name, inner in value.items()
            }
        if isinstance(value, Iterable) and not isinstance(value, bytes):
            return [self.marked(inner) for inner in value]
        return value


class TurnRenderer(OnlineRenderer):
    """vLLM's renderer, over marked messages. The request itself, whose schemas become grammars, stays as it is."""

    def __init__(self, model_config: ModelConfig, renderer: BaseRenderer, marks: Marks | None, **shared: Any) -> None:
        super().__init__(model_config, renderer, **shared)
        self._marks = marks

    async def preprocess_chat(
        self,
        request: Any,
        messages: list[Any],
        *arguments: Any,
        tool_dicts: list[dict[str, Any]] | None = None,
        **options: Any,
    ) -> Any:
        """As vLLM's; messages and tools are what goes through the template."""
        if self._marks:
            messages, tool_dicts = self._marks.marked(messages), self._marks.marked(tool_dicts)
        return await super().preprocess_chat(request, messages, *arguments, tool_dicts=tool_dicts, **options)


def marks_of(tokenizer: Any) -> Marks | None:
    """Marks for `tokenizer`; None for Mistral's own, which never reads control tokens in a message."""
    return None if tokenizer is None or is_mistral_tokenizer(tokenizer) else Marks(tokenizer)


def _take_apart(tokenizer: Any, mark: str) -> None:
    """Makes `tokenizer` encode a text with marks piece by piece. As vLLM's own cache does, it changes its class."""
    plain: Any = type(tokenizer)

    class TakenApart(plain):
        def __call__(self, text: Any = None, *arguments: Any, **options: Any) -> Any:
            if not isinstance(text, str) or mark not in text:
                return super().__call__(text, *arguments, **options)
            first, *others = text.split(mark)
            ids = list(super().__call__(first, *arguments, **options)["input_ids"])
            # All at once and by the library below: there may be ten thousand.
            for more in self.backend_tokenizer.encode_batch_fast(others, add_special_tokens=False):
                ids += more.ids
            return {"input_ids": ids}

        def __reduce__(self) -> Any:
            # A copy in another process is an ordinary one: no text with marks gets there.
            return plain.__reduce__(self)

    TakenApart.__name__ = plain.__name__
    TakenApart.__qualname__ = plain.__qualname__
    tokenizer.__class__ = TakenApart
