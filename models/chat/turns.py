"""Messages of clients cannot forge turns: what spells a control token in them is text. Needs vLLM.

A chat template puts messages together as one text, in which `<|im_end|>` of the template and of a user are the same.
So whatever spells a control token in a message first gets an unguessable sentinel inside, and the tokenizer takes the
finished text apart there, so that no control token is ever seen whole. Text without control tokens has no sentinels and
becomes the same tokens as before.

Arguments of earlier calls are JSON in a string, in which `<` has several spellings: they are parsed first, and their
values get the sentinels.
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

from concurrency.semaphore import FairSemaphore
from contract.errors import INVALID_REQUEST
from models.chat.cut import cut_expanded, dropped, newest
from models.llm.images import cache_names, refuse_large
from models.llm.plain_text import PlainText
from models.llm.vllm_internals.serving import split_texts_at

IMAGE_REQUESTS = 4
"""Requests with images that are decoded at a time; each takes up to a gigabyte. An organisation has at most three."""

OPAQUE = frozenset({"image_url"})
"""Members of a message that no template puts into its text."""


class Sentinels:
    """Puts a sentinel into whatever spells a control token, and makes one tokenizer take texts apart there.

    Args:
        tokenizer: a fast one of Hugging Face; it is changed.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._sentinel = secrets.token_hex(12)
        self._plain = PlainText(tokenizer)
        split_texts_at(tokenizer, self._sentinel)

    def insert(self, value: Any) -> Any:
        """A copy of messages or tools with a sentinel in every control token of every text."""
        if isinstance(value, str):
            return self._plain.cut(value, self._sentinel)
        if isinstance(value, BaseModel):
            return self.insert(value.model_dump(exclude_none=True))
        if isinstance(value, Mapping):
            return {
                self._plain.cut(name, self._sentinel): inner if name in OPAQUE else self.insert(inner)
                for name, inner in value.items()
            }
        if isinstance(value, Iterable) and not isinstance(value, bytes):
            return [self.insert(inner) for inner in value]
        return value


class TurnRenderer(OnlineRenderer):
    """vLLM's renderer, over messages with sentinels, with our cut around images. The request itself is not changed."""

    def __init__(
        self, model_config: ModelConfig, renderer: BaseRenderer, sentinels: Sentinels | None, **shared: Any
    ) -> None:
        super().__init__(model_config, renderer, **shared)
        self._sentinels = sentinels
        self._image_slots = FairSemaphore(IMAGE_REQUESTS, each=IMAGE_REQUESTS - 1)

    async def preprocess_chat(
        self,
        request: Any,
        messages: list[Any],
        *arguments: Any,
        tool_dicts: list[dict[str, Any]] | None = None,
        **options: Any,
    ) -> Any:
        """Works as vLLM's; messages and tools are what goes through the template."""
        options |= {"tool_dicts": tool_dicts}
        if not any(isinstance(message.get("content"), list) for message in messages):  # text alone
            return await self._rendered(request, messages, *arguments, **options)
        messages = self._newest(messages, tool_dicts)
        messages = await asyncio.to_thread(named, messages, request.cache_salt)
        async with self._image_slots.of(request.cache_salt or ""):
            conversation, prompts = await self._rendered(request, messages, *arguments, **options)
        return conversation, [self._cut(request, prompt) for prompt in prompts]

    async def _rendered(self, request: Any, messages: list[Any], *arguments: Any, **options: Any) -> Any:
        if self._sentinels:
            messages = self._sentinels.insert(map(with_values, messages))
            options["tool_dicts"] = self._sentinels.insert(options["tool_dicts"])
        return await super().preprocess_chat(request, messages, *arguments, **options)

    def _newest(self, messages: list[Any], tools: list[dict[str, Any]] | None) -> list[Any]:
        """`messages` without text that is cut in any case: making tokens of it would take long."""
        most_chars = self.model_config.max_model_len * self.renderer.get_tokenizer().max_chars_per_token
        if tools and len(json.dumps(tools)) > most_chars:
            raise INVALID_REQUEST(
                "`tools` are longer than the context window of the model; shorten them", param="tools"
            )
        return newest(messages, most_chars)

    def _cut(self, request: Any, prompt: Any) -> Any:
        """`prompt`, cut where it is too long with all its images. The engine gets the images that remain."""
        if prompt["type"] != "multimodal":
            return prompt
        cut = cut_expanded(prompt, request.build_tok_params(self.model_config), self.renderer.tokenizer)
        cache = self.renderer.mm_processor_cache
        for image in dropped(prompt, cut) if cache else ():
            # The cache assumes that the engine has received each image.
            cache.invalidate(image)
        return cut


def named(messages: list[Any], salt: str | None) -> list[Any]:
    """`messages`, each image with its name in caches. Blocks.

    Raises INVALID_REQUEST for images that are too large.
    """
    images = [
        (f"messages[{index}].content", part["image_url"]["url"])
        for index, message in enumerate(messages)
        for part in _parts(message)
        if part["type"] == "image_url"
    ]
    refuse_large(images)
    names = iter(cache_names([address for _, address in images], salt))

    def with_name(part: dict[str, Any]) -> dict[str, Any]:
        return part | {"uuid": next(names)} if part["type"] == "image_url" else part

    return [
        message | {"content": list(map(with_name, parts))} if (parts := _parts(message)) else message
        for message in messages
    ]


def _parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    return content if isinstance(content := message["content"], list) else []


def with_values(message: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `message` with the arguments of its tool calls as the objects that vLLM makes of them for templates."""
    read = dict(message)
    if calls := read.get("tool_calls"):
        read["tool_calls"] = [
            call | {"function": call["function"] | {"arguments": json.loads(call["function"]["arguments"])}}
            for call in calls
        ]
    return read


def sentinels_for(tokenizer: Any) -> Sentinels | None:
    """Sentinels for `tokenizer`; None for Mistral's own, which never reads control tokens in a message."""
    return None if tokenizer is None or is_mistral_tokenizer(tokenizer) else Sentinels(tokenizer)
