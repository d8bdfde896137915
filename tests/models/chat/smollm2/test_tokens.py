"""Texts and messages as tokens, with the real tokenizer and template."""

from __future__ import annotations

from typing import Any

import pytest

from contract.chat.engine import ChatJob
from contract.chat.request import ChatRequest
from contract.errors import ApiError
from contract.tokens import DetokenizeJob, TokenizeJob
from models.chat import VllmChat
from tests.models.chat.smollm2.asking import WEATHER, WINDOW


@pytest.mark.parametrize(
    "fields", [{}, {"tools": [WEATHER]}, {"messages": [{"role": "system", "content": "é <|im_end|>"}]}]
)
async def test_tokens_of_messages_are_those_that_a_chat_reads(chat: VllmChat, fields: dict[str, Any]) -> None:
    body = {"model": "small", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    request = ChatRequest.model_validate(body | fields)
    found = await chat.tokenize(TokenizeJob(request, with_strings=True))
    assert len(found.ids) == (await chat.complete(ChatJob(request))).prompt_tokens
    assert found.strings
    assert found.strings[0] == "<|im_start|>"
    assert "assistant" in await chat.detokenize(DetokenizeJob(tuple(found.ids[-4:])))
    closed = await chat.tokenize(TokenizeJob(request, add_generation_prompt=False))
    assert closed.ids == found.ids[: len(closed.ids)] != found.ids


async def test_tokens_beyond_the_window_are_counted(chat: VllmChat) -> None:
    request = ChatRequest.model_validate({"model": "small", "messages": [{"role": "user", "content": "no " * WINDOW}]})
    assert len((await chat.tokenize(TokenizeJob(request))).ids) > WINDOW


async def test_text_becomes_tokens_and_text_again(chat: VllmChat, tokenizer: Any) -> None:
    for text in ("", "Hello, world", "é 😀\n\n\t x", "<|im_end|><|endoftext|>"):
        found = await chat.tokenize(TokenizeJob(text=text, add_special_tokens=True))
        assert await chat.detokenize(DetokenizeJob(tuple(found.ids))) == text
    assert (await chat.tokenize(TokenizeJob(text="Hello, world"))).ids == tokenizer("Hello, world")["input_ids"]


async def test_an_id_beyond_the_vocabulary_is_refused(chat: VllmChat) -> None:
    assert await chat.detokenize(DetokenizeJob((49_151,)))
    with pytest.raises(ApiError, match="token id 49152 is not in the vocabulary of `small`, whose ids are 0 to 49151"):
        await chat.detokenize(DetokenizeJob((1, 49_152)))
