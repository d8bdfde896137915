"""What an engine with real weights answers, whole and streamed."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from contract.chat.engine import ChatJob
from contract.messages.reply import MessageEvents, message
from contract.messages.request import MessagesRequest
from contract.messages.translation import chat_request
from models.chat import VllmChat
from tests.docs.pages import ROOT, marked
from tests.models.chat.smollm2.asking import PARIS, ask, batches, chunks_of, said, said_in_pieces, text_of
from tests.sdk import added_up

CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
LOOKING: dict[str, Any] = {
    "tools": [{"name": "get_weather", "input_schema": CITY}],
    "tool_choice": {"type": "tool", "name": "get_weather"},
}


async def test_the_answer_is_right(chat: VllmChat) -> None:
    reply = await chat.complete(ask())
    assert set(reply.body) == {"id", "object", "created", "model", "choices", "usage"}
    assert reply.body["object"] == "chat.completion"
    assert reply.body["model"] == "small"
    (choice,) = reply.body["choices"]
    assert "Paris" in choice["message"]["content"]
    assert choice["finish_reason"] == "stop"
    usage = reply.body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (reply.prompt_tokens, reply.completion_tokens)
    assert usage["total_tokens"] == reply.prompt_tokens + reply.completion_tokens


async def test_a_stream_says_the_same(chat: VllmChat) -> None:
    whole = await chat.complete(ask())
    sent = await batches(chat, ask(stream=True))
    chunks = chunks_of(sent)
    assert text_of(chunks) == whole.body["choices"][0]["message"]["content"]
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert chunks[0]["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert all("usage" not in chunk for chunk in chunks)
    counts = [batch.completion_tokens for batch in sent]
    assert counts == sorted(counts)
    assert sent[0].completion_tokens == 1
    assert (sent[-1].prompt_tokens, counts[-1]) == (whole.prompt_tokens, whole.completion_tokens)


async def test_usage_is_the_last_event_when_asked_for(chat: VllmChat) -> None:
    *chunks, last = chunks_of(await batches(chat, ask(max_tokens=3, stream_options={"include_usage": True})))
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


async def test_stop_ends_the_answer_before_it(chat: VllmChat) -> None:
    reply = await chat.complete(ask(stop=[" of"]))
    assert reply.body["choices"][0]["message"]["content"] == "The capital"
    assert reply.body["choices"][0]["finish_reason"] == "stop"
    sent = await batches(chat, ask(stop=" of"))
    assert text_of(chunks_of(sent)) == "The capital"
    assert (reply.stop_sequence, sent[-1].stop_sequence) == (" of", " of")
    assert (await chat.complete(ask())).stop_sequence is None


async def test_on_anthropics_wire_a_stream_adds_up_to_the_message(chat: VllmChat) -> None:
    body = {"model": "small", "max_tokens": 64, "messages": [{"role": "user", "content": PARIS}], "temperature": 0}
    fields: dict[str, Any]
    for fields in ({}, {"stop_sequences": [" of"]}, {"max_tokens": 3}, LOOKING):
        job = ChatJob(chat_request(MessagesRequest.model_validate(body | fields)))
        whole = message(await chat.complete(job))
        told = MessageEvents("small")
        streamed = added_up(b"".join([*[told.of(batch) for batch in await batches(chat, job)], *told.end()]))
        for made in (whole, streamed):
            assert made["id"].startswith("msg_")
            for block in made["content"]:
                if block["type"] == "tool_use":
                    assert block.pop("id")
        read = [made["usage"]["input_tokens"] + made["usage"]["cache_read_input_tokens"] for made in (whole, streamed)]
        assert read[0] == read[1]
        assert (whole["content"], whole["stop_reason"]) == (streamed["content"], streamed["stop_reason"])
        assert (whole["content"][0]["type"] == "tool_use") == ("tools" in fields)


async def test_several_answers(chat: VllmChat) -> None:
    job = ask("Tell me a story.", n=2, temperature=1, seed=1, max_tokens=8)
    reply = await chat.complete(job)
    assert [choice["index"] for choice in reply.body["choices"]] == [0, 1]
    first, second = (choice["message"]["content"] for choice in reply.body["choices"])
    assert first != second
    assert reply.completion_tokens == 16
    chunks = chunks_of(await batches(chat, job))
    assert (text_of(chunks, 0), text_of(chunks, 1)) == (first, second)
    single, double = await said(chat, ask(max_tokens=6)), await chat.complete(ask(max_tokens=6, n=2))
    assert [choice["message"]["content"] for choice in double.body["choices"]] == [single] * 2, (
        "greedy ones are the same"
    )


async def test_logprobs(chat: VllmChat) -> None:
    job = ask(logprobs=True, top_logprobs=2, max_tokens=4)
    reply = await chat.complete(job)
    content = reply.body["choices"][0]["logprobs"]["content"]
    assert "".join(token["token"] for token in content) == reply.body["choices"][0]["message"]["content"]
    for token in content:
        assert len(token["top_logprobs"]) == 2
        assert token["logprob"] == max(top["logprob"] for top in token["top_logprobs"]) <= 0
        assert bytes(token["bytes"]).decode() == token["token"]
    chunks = chunks_of(await batches(chat, job))
    streamed = [choice["logprobs"]["content"] for c in chunks for choice in c["choices"] if choice["logprobs"]]
    assert [token["token"] for part in streamed for token in part] == [token["token"] for token in content]


async def test_a_seed_repeats_the_answer_and_sampling_fields_of_vllm_have_their_effect(chat: VllmChat) -> None:
    async def told(seed: int = 7, **fields: Any) -> str:
        return await said(chat, ask("Tell me a story.", temperature=1.5, seed=seed, max_tokens=12, **fields))

    assert await told() == await told() != await told(8)

    greedy = await said(chat, ask("Tell me a story.", max_tokens=12))
    free = await told()
    assert await told(top_k=1) == await told(min_p=1) == greedy != free
    assert await told(top_k=0) == await told(top_k=-1) == await told(min_p=0) == free
    plain, varied = (ask("Say yes yes yes yes yes.", max_tokens=12, repetition_penalty=by) for by in (1.0, 2.0))
    assert await said(chat, plain) != await said(chat, varied)


async def test_many_at_once_do_not_mix(chat: VllmChat) -> None:
    words = ["apple", "river", "stone", "train", "cloud", "music", "paper", "green", "night", "bread", "horse", "glass"]

    async def repeat(word: str) -> str:
        return await said_in_pieces(chat, ask(f"Say only this word: {word}", max_tokens=8))

    together = await asyncio.gather(*map(repeat, words))
    for word, answer in zip(words, together, strict=True):
        assert not [other for other in words if other != word and other in answer.lower()]


def test_the_page_asks_a_model_that_it_loads_itself(smollm2: Path) -> None:
    """The block of docs/python-client.md that asks without Ray."""
    code = marked(ROOT / "docs/python-client.md", "run without Ray")
    environment = os.environ | {"PARLANCE_HOME": str(smollm2.parent.parent), "PARLANCE_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout.splitlines()[-1]
