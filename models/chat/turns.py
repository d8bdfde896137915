"""Messages of clients cannot forge turns: what spells a control token in them is text. Needs vLLM.

A chat template puts messages together as one text, in which nobody can tell `<|im_end|>` of the template from that of a
user. So whatever spells a control token in a message is marked first, with a mark that nobody can guess; and the
tokenizer takes the finished text apart at the marks, so that no control token is ever seen whole. Text without control
tokens has no marks, and becomes the same tokens as before.

Arguments of earlier calls are JSON in a string, in which `<` has several spellings: they are read first, and marked as
values.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from vllm.config import ModelConfig
from vllm.renderers.base import BaseRenderer
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.utils.mistral import is_mistral_tokenizer

from audio.turns import Turns
from contract.errors import INVALID_REQUEST
from models.chat.cut import cut_expanded, dropped, has_images, newest
from models.llm.pictures import known_by, refuse_large
from models.llm.plain_text import PlainText

PICTURED = 4
"""Requests with images that are decoded at a time; each takes up to a gigabyte. One place is no one organisation's."""

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
    """vLLM's renderer, over marked messages, with our cut around images. The request itself stays as it is."""

    def __init__(self, model_config: ModelConfig, renderer: BaseRenderer, marks: Marks | None, **shared: Any) -> None:
        super().__init__(model_config, renderer, **shared)
        self._marks = marks
        self._pictured = Turns(PICTURED, each=PICTURED - 1)

    async def preprocess_chat(
        self,
        request: Any,
        messages: list[Any],
        *arguments: Any,
        tool_dicts: list[dict[str, Any]] | None = None,
        **options: Any,
    ) -> Any:
        """As vLLM's; messages and tools are what goes through the template."""
        options |= {"tool_dicts": tool_dicts}
        if not has_images(messages):
            return await self._rendered(request, messages, *arguments, **options)
        messages = self._newest(messages, tool_dicts)
        messages = await asyncio.to_thread(named, messages, request.cache_salt)
        async with self._pictured.of(request.cache_salt or ""):
            conversation, prompts = await self._rendered(request, messages, *arguments, **options)
        return conversation, [self._cut(request, prompt) for prompt in prompts]

    async def _rendered(self, request: Any, messages: list[Any], *arguments: Any, **options: Any) -> Any:
        if self._marks:
            messages = self._marks.marked(map(with_values, messages))
            options["tool_dicts"] = self._marks.marked(options["tool_dicts"])
        return await super().preprocess_chat(request, messages, *arguments, **options)

    def _newest(self, messages: list[Any], tools: list[dict[str, Any]] | None) -> list[Any]:
        """`messages` without text that is surely cut: making tokens of it would take long."""
        most_chars = self.model_config.max_model_len * self.renderer.get_tokenizer().max_chars_per_token
        if tools and len(json.dumps(tools)) > most_chars:
            raise INVALID_REQUEST(
                "`tools` are longer than the context window of the model; shorten them", param="tools"
            )
        calls = (call for message in messages for call in message.get("tool_calls") or ())
        if sum(len(call["function"]["arguments"]) for call in calls) > most_chars:
            raise INVALID_REQUEST(
                "the arguments of tool calls are longer than the context window of the model; shorten them",
                param="messages",
            )
        return newest(messages, most_chars)

    def _cut(self, request: Any, prompt: Any) -> Any:
        """`prompt`, cut where it is too long with all its images. The engine gets those that are left."""
        if prompt["type"] != "multimodal":
            return prompt
        cut = cut_expanded(prompt, request.build_tok_params(self.model_config), self.renderer.tokenizer)
        cache = self.renderer._mm_processor_cache
        for image in dropped(prompt, cut) if cache else ():
            # It takes for granted that the engine has seen each image.
            cache.invalidate(image)
        return cut


def named(messages: list[Any], salt: str | None) -> list[Any]:
    """`messages`, each image with the name that caches know it by. Blocks.

    Raises INVALID_REQUEST for images that are too large.
    """
    images = [
        (f"messages.{place}.content", part["image_url"]["url"])
        for place, message in enumerate(messages)
        for part in _parts(message)
        if part["type"] == "image_url"
    ]
    refuse_large(images)
    names = iter(known_by([address for _, address in images], salt))

    def told(part: dict[str, Any]) -> dict[str, Any]:
        return part | {"uuid": next(names)} if part["type"] == "image_url" else part

    return [
        message | {"content": list(map(told, parts))} if (parts := _parts(message)) else message for message in messages
    ]


def _parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    return content if isinstance(content := message["content"], list) else []


def with_values(message: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `message` with the arguments of its tool calls as the objects that vLLM makes of them for templates."""
    read = dict(message)
    if calls := read.get("tool_calls"):
        read["tool_calls"] = [call | {"function": _read(call["function"])} for call in calls]
    return read


def _read(function: dict[str, Any]) -> dict[str, Any]:
    return function | {"arguments": json.loads(function["arguments"])}


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
