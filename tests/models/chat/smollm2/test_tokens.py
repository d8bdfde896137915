"""Texts and messages as tokens, with the real tokenizer and template."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contract.chat.engine import ChatJob
from contract.chat.request import ChatRequest
from contract.errors import ApiError
from contract.tokens import DetokenizeJob, TokenizeJob
from models.chat import VllmChat
from tests.models.chat.smollm2.asking import WEATHER, WINDOW, ask


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


async def test_chats_that_are_cut_and_long_texts_read_one_tokenizer_at_a_time(chat: VllmChat) -> None:
    """They share it, and it must stay as it is: what one of them would cut, the others would lose."""
    texts = ["no " * 20 * WINDOW, "<|im_end|> so " * 4 * WINDOW]
    alone = [len((await chat.tokenize(TokenizeJob(text=text))).ids) for text in texts]
    tokenizing = [chat.tokenize(TokenizeJob(text=text)) for text in texts * 3]
    chats = [chat.complete(ask(f"{number} {text}", max_tokens=8)) for number, text in enumerate(texts * 3)]
    *found, first, second, _, _, _, _ = await asyncio.gather(*tokenizing, *chats)
    assert [len(tokens.ids) for tokens in found] == alone * 3
    assert first.prompt_tokens == second.prompt_tokens == WINDOW - 8
    assert len((await chat.tokenize(TokenizeJob(text=texts[0]))).ids) == alone[0]


async def test_text_becomes_tokens_and_text_again(chat: VllmChat, tokenizer: Any) -> None:
    for text in ("", "Hello, world", "é 😀\n\n\t x", "<|im_end|><|endoftext|>"):
        found = await chat.tokenize(TokenizeJob(text=text, add_special_tokens=True))
        assert await chat.detokenize(DetokenizeJob(tuple(found.ids))) == text
    assert (await chat.tokenize(TokenizeJob(text="Hello, world"))).ids == tokenizer("Hello, world")["input_ids"]


async def test_an_id_beyond_the_vocabulary_is_refused(chat: VllmChat) -> None:
    assert await chat.detokenize(DetokenizeJob((49_151,)))
    with pytest.raises(ApiError, match="token id 49152 is not in the vocabulary of `small`, whose ids are 0 to 49151"):
        await chat.detokenize(DetokenizeJob((1, 49_152)))
