"""Inputs of a chat: what is cut, what is found again of an earlier one, token ids, and clients that leave."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from contract.chat.engine import ChatJob
from contract.errors import ApiError
from contract.tokens import DetokenizeJob, TokenizeJob
from models.chat import VllmChat
from tests.models.chat.engines import stanza
from tests.models.chat.smollm2.asking import PARIS, WEATHER, WINDOW, ask, batches, chunks_of
from tests.waiting import until


async def test_a_long_input_is_cut_at_the_top_and_the_reply_tells(chat: VllmChat) -> None:
    job = ask("word " * 3 * WINDOW + PARIS, max_tokens=12, stream_options={"include_usage": True})
    reply = await chat.complete(job)
    assert reply.prompt_tokens == WINDOW - 12
    assert reply.cut_tokens == reply.body["usage"]["prompt_tokens_cut"] > 2 * WINDOW
    sent = await batches(chat, job)
    assert {batch.cut_tokens for batch in sent} == {reply.cut_tokens}
    assert chunks_of(sent)[-1]["usage"] == reply.body["usage"] | {
        "prompt_tokens_details": {"cached_tokens": sent[-1].cached_tokens}
    }
    assert "prompt_tokens_cut" not in (await chat.complete(ask(max_tokens=1))).body["usage"]
    assert reply.completion_tokens >= 1
    # Without a budget a quarter of the window stays for the answer.
    reply = await chat.complete(ask("word " * 3 * WINDOW, max_tokens=None))
    assert reply.prompt_tokens == WINDOW - WINDOW // 4


async def test_an_input_that_fits_is_not_cut_and_its_budget_is(chat: VllmChat) -> None:
    empty = (await chat.complete(ask("", max_tokens=1))).prompt_tokens
    for prompt_tokens in (WINDOW - 2, WINDOW - 1):
        job = ask(("word " * (prompt_tokens - empty)).strip(), max_tokens=10 * WINDOW, stream=True)
        last = (await batches(chat, job))[-1]
        assert last.prompt_tokens == prompt_tokens
        assert 1 <= last.completion_tokens <= WINDOW - prompt_tokens
    cut = (await batches(chat, ask(("word " * (WINDOW - empty)).strip(), max_tokens=5)))[-1]
    assert cut.prompt_tokens == WINDOW - 5


async def test_what_an_organisation_has_sent_before_is_counted_and_nobody_elses(chat: VllmChat) -> None:
    def again(salt: str, **fields: Any) -> ChatJob:
        return replace(ask("Tell me about rivers. " * 40, max_tokens=2, **fields), owner=salt)

    for salt in ("one", "two"):
        first, second = await chat.complete(again(salt)), await chat.complete(again(salt))
        assert first.cached_tokens == 0
        assert first.prompt_tokens - 128 <= second.cached_tokens < second.prompt_tokens
        assert second.body["usage"]["prompt_tokens_details"] == {"cached_tokens": second.cached_tokens}
    sent = await batches(chat, again("one", stream_options={"include_usage": True}))
    assert sent[0].cached_tokens == sent[-1].cached_tokens == second.cached_tokens
    assert chunks_of(sent)[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": second.cached_tokens}


async def test_several_answers_find_nothing_cached_that_they_left_themselves(chat: VllmChat) -> None:
    several = ask("Tell me of seas. " * 40, n=3, temperature=1, max_tokens=2)
    whole, streamed = replace(several, owner="new"), replace(several, owner="new, too")
    first, again = [await chat.complete(whole) for _ in range(2)]
    assert first.cached_tokens == 0 < again.cached_tokens < again.prompt_tokens
    first_sent, again_sent = [(await batches(chat, streamed))[-1] for _ in range(2)]
    assert first_sent.cached_tokens == 0 < again_sent.cached_tokens < again_sent.prompt_tokens


async def test_tokens_of_messages_are_those_that_a_chat_reads(chat: VllmChat) -> None:
    for fields in ({}, {"tools": [WEATHER]}, {"messages": [{"role": "system", "content": "é <|im_end|>"}]}):
        request = ask("Hi", max_tokens=1, **fields).request
        found = await chat.tokenize(TokenizeJob(request, with_strings=True))
        assert len(found.ids) == (await chat.complete(ChatJob(request))).prompt_tokens
        assert found.strings
        assert found.strings[0] == "<|im_start|>"
        assert "assistant" in await chat.detokenize(DetokenizeJob(tuple(found.ids[-4:])))
        closed = await chat.tokenize(TokenizeJob(request, add_generation_prompt=False))
        assert closed.ids == found.ids[: len(closed.ids)] != found.ids
    beyond = ask("no " * WINDOW, tools=[WEATHER]).request
    assert len((await chat.tokenize(TokenizeJob(beyond))).ids) > WINDOW


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


async def test_text_becomes_tokens_and_text_again_but_for_ids_beyond_the_vocabulary(
    chat: VllmChat, tokenizer: Any
) -> None:
    for text in ("", "Hello, world", "é 😀\n\n\t x", "<|im_end|><|endoftext|>"):
        found = await chat.tokenize(TokenizeJob(text=text, add_special_tokens=True))
        assert await chat.detokenize(DetokenizeJob(tuple(found.ids))) == text
    assert (await chat.tokenize(TokenizeJob(text="Hello, world"))).ids == tokenizer("Hello, world")["input_ids"]
    assert await chat.detokenize(DetokenizeJob((49_151,)))
    with pytest.raises(ApiError, match="token id 49152 is not in the vocabulary of `small`, whose ids are 0 to 49151"):
        await chat.detokenize(DetokenizeJob((1, 49_152)))


async def test_a_healthy_engine_that_stands_still_is_not_healthy(
    chat: VllmChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.check_health()
    core = chat.engine.engine_core
    held, go_on = threading.Event(), threading.Event()
    core._command(lambda: (held.set(), go_on.wait()))
    try:
        assert held.wait(30)
        pending = asyncio.ensure_future(chat.complete(ask(max_tokens=1)))
        await until(lambda: not core._commands.empty())
        await chat.check_health()
        monkeypatch.setattr(core.stalls, "most_s", 0.0)
        with pytest.raises(RuntimeError, match="no step"):
            await chat.check_health()
    finally:
        go_on.set()
    await pending


async def test_a_short_prompt_is_answered_while_long_ones_of_another_are_read(chat: VllmChat) -> None:
    scheduler, order = chat.engine.engine_core.engine_core.scheduler, list[str]()

    async def answered(owner: str, text: str) -> None:
        await chat.complete(replace(ask(text, max_tokens=1), owner=owner))
        order.append(owner)

    long = [asyncio.create_task(answered("org-1", f"{i}: " + "hello there, " * 80)) for i in range(3)]
    await until(lambda: len(scheduler.requests) == len(long) and scheduler.running)
    await asyncio.gather(answered("org-2", "hi"), *long)
    assert order == ["org-2", "org-1", "org-1", "org-1"]


async def test_a_grammar_that_is_known_costs_no_step(chat: VllmChat, monkeypatch: pytest.MonkeyPatch) -> None:
    core, steps = chat.engine.engine_core, list[Any]()
    step = core.get_output
    monkeypatch.setattr(core, "get_output", lambda: steps.append(output := step()) or output)
    monkeypatch.setattr("models.llm.vllm_internals.core.LOOK_UP_S", 30)
    for _ in range(2):
        await until(lambda: not core.engine_core.scheduler.has_requests())
        steps.clear()
        await chat.complete(ask(response_format={"type": "json_object"}, max_tokens=1))
    assert len(steps) <= 2, "that of the prompt, and one that ends it"


def test_owners_take_turns_and_none_waits_for_ever() -> None:
    from models.llm.vllm_internals.core import turn

    def request(owner: str, priority: int, num_tokens: int = 9) -> SimpleNamespace:
        return SimpleNamespace(cache_salt=owner, priority=priority, num_tokens=num_tokens, num_computed_tokens=0)

    waiting: list[Any] = []
    for owner in "aaaab":
        waiting.append(request(owner, turn(owner, waiting)))
    assert [request.priority for request in waiting] == [0, 1, 2, 3, 0]
    del waiting[:2], waiting[-1]
    assert turn("a", waiting) == 4
    assert turn("b", waiting) == 2, "with the first that waits, and not before it"
    assert turn("b", [*waiting, request("b", 7, num_tokens=1)]) == 2, "an answer does not count"


@pytest.mark.parametrize(
    ("reading", "waiting", "most"),
    [
        ("", "", 0), ("A", "A", 0), ("AA", "", 0), ("A", "B", 256), ("AB", "A", 256), ("AA", "B", 171),
        ("A", "b", 482), ("Ab", "C", 241), ("a", "b", 482), ("AAb", "", 241),
    ],
)  # fmt: skip
def test_each_step_has_room_for_the_next_owner(reading: str, waiting: str, most: int) -> None:
    """Lower case: 30 tokens are left to read; upper case: 800."""
    from models.llm.vllm_internals.core import share

    def request(owner: str) -> SimpleNamespace:
        left = 30 if owner.islower() else 800
        return SimpleNamespace(cache_salt=owner.upper(), num_computed_tokens=100, num_tokens=100 + left)

    answered = SimpleNamespace(cache_salt="D", num_computed_tokens=9, num_tokens=10)
    first = SimpleNamespace(peek_request=lambda: request(waiting)) if waiting else None
    running = [answered, *map(request, reading)]
    assert share(SimpleNamespace(running=running, waiting=first, max_num_scheduled_tokens=513)) == most


@pytest.mark.parametrize(
    ("stated", "most"), [({}, 136), ({"max_num_seqs": 16}, 144), ({"max_num_batched_tokens": 64}, 64)]
)
def test_a_step_reads_few_tokens_unless_the_stanza_says_another_number(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch, stated: dict[str, int], most: int
) -> None:
    monkeypatch.setattr("models.llm.engine.start", Mock(side_effect=lambda spec: pytest.fail(str(spec.arguments))))
    with pytest.raises(pytest.fail.Exception, match=f"'max_num_batched_tokens': {most}"):
        VllmChat(stanza("small", WINDOW, stated, tier="default"), smollm2)
