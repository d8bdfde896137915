"""The chat engine with real weights: one engine for all tests of this file, the last of which ends it."""

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from contract.catalog import ChatModel, Serving
from contract.chat.engine import ChatBatch, ChatJob, ChatReply
from contract.chat.request import ChatRequest
from contract.errors import ApiError
from contract.messages.events import MessageEvents
from contract.messages.reply import message
from contract.messages.request import MessagesRequest
from contract.messages.translation import chat_request
from models.chat import VllmChat
from models.llm.grammars import CHILDREN
from models.weights import store as weights
from tests.messages import added_up
from tests.waiting import until

WINDOW = 512
PARIS = "What is the capital of France?"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(300),
    # What vLLM and torch say about themselves while they are imported.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


LOOKING: dict[str, Any] = {
    "tools": [
        {
            "name": "get_weather",
            "input_schema": {
                "type": "object",
                "properties": {"city": {"enum": ["Paris", "Rome"]}},
                "required": ["city"],
            },
        }
    ],
    "tool_choice": {"type": "tool", "name": "get_weather"},
}


@pytest.fixture(scope="module")
def smollm2_path() -> Path:
    return weights.ensure("smollm2-135m-instruct")


@pytest.fixture(scope="module")
async def chat(anyio_backend: str, smollm2_path: Path) -> AsyncIterator[VllmChat]:
    engine_arguments = {
        "dtype": "bfloat16", "enforce_eager": True, "max_num_seqs": 8, "kv_cache_memory_bytes": 1 << 28,
    }  # fmt: skip
    options = {"chat_template": "smollm2.jinja", "engine": engine_arguments}
    model = ChatModel(
        id="small",
        owned_by="test",
        tier="default",
        context_window=WINDOW,
        tool_parser="hermes",
        serving=Serving(adapter="models.chat:VllmChat", runtime="small", threads=2, options=options),
    )
    engine = VllmChat(model, smollm2_path)
    yield engine
    engine.close()


def ask(content: Any = PARIS, **fields: Any) -> ChatJob:
    body = {"model": "small", "messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 24}
    return ChatJob(ChatRequest.model_validate(body | fields))


async def batches(chat: VllmChat, job: ChatJob) -> list[ChatBatch]:
    return [batch async for batch in chat.stream(job)]


def chunks_of(sent: list[ChatBatch]) -> list[dict[str, Any]]:
    events = b"".join(batch.events for batch in sent).decode()
    assert events.endswith("\n\n")
    lines = events.removesuffix("\n\n").split("\n\n")
    assert all(line.startswith("data: {") for line in lines)
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def text_of(chunks: list[dict[str, Any]], index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get("content", "") for choice in choices)


def calls_of(chunks: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Tool calls put together from their deltas, as a client does it."""
    calls: list[dict[str, str]] = []
    for delta in (choice["delta"] for chunk in chunks for choice in chunk["choices"]):
        for part in delta.get("tool_calls", []):
            if part["index"] == len(calls):
                assert part["type"] == "function"
                calls.append({"id": part["id"], "name": part["function"]["name"], "arguments": ""})
            calls[part["index"]]["arguments"] += part["function"].get("arguments", "")
    return calls


async def idle(chat: VllmChat) -> None:
    """Returns when neither the loop's half nor the scheduler holds a request."""
    scheduler = chat._engine.engine_core.engine_core.scheduler
    await until(lambda: not chat.unfinished and not scheduler.get_num_unfinished_requests())


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


@pytest.mark.parametrize("fields", [{}, {"stop_sequences": [" of"]}, {"max_tokens": 3}, LOOKING])
async def test_on_anthropics_wire_a_stream_adds_up_to_the_message(chat: VllmChat, fields: dict[str, Any]) -> None:
    body = {"model": "small", "max_tokens": 64, "messages": [{"role": "user", "content": PARIS}], "temperature": 0}
    job = ChatJob(chat_request(MessagesRequest.model_validate(body | fields)))
    whole = message(await chat.complete(job))
    told = MessageEvents("small")
    streamed = added_up(b"".join([*[told.of(batch) for batch in await batches(chat, job)], *told.end()]))
    for made in (whole, streamed):
        assert made["id"].startswith("msg_")
        for block in made["content"]:
            if block["type"] == "tool_use":
                assert block.pop("id")
    read = [usage["input_tokens"] + usage["cache_read_input_tokens"] for usage in (whole["usage"], streamed["usage"])]
    assert read[0] == read[1]
    assert whole["content"] == streamed["content"]
    assert whole["stop_reason"] == streamed["stop_reason"]
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


async def test_several_greedy_answers_are_the_same(chat: VllmChat) -> None:
    single = await chat.complete(ask(max_tokens=6))
    double = await chat.complete(ask(max_tokens=6, n=2))
    texts = [choice["message"]["content"] for choice in double.body["choices"]]
    assert texts == [single.body["choices"][0]["message"]["content"]] * 2


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


async def test_a_seed_repeats_the_answer(chat: VllmChat) -> None:
    async def told(seed: int) -> str:
        reply = await chat.complete(ask("Tell me a story.", temperature=1.5, seed=seed, max_tokens=12))
        return str(reply.body["choices"][0]["message"]["content"])

    assert await told(7) == await told(7)
    assert await told(7) != await told(8)


async def test_an_answer_follows_its_schema(chat: VllmChat) -> None:
    schema = {
        "type": "object",
        "properties": {"capital": {"type": "string", "maxLength": 12}, "size": {"enum": ["small", "big"]}},
        "required": ["capital", "size"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    reply = await chat.complete(ask(response_format=form, max_tokens=80))
    answer = json.loads(reply.body["choices"][0]["message"]["content"])
    assert set(answer) == {"capital", "size"}
    assert answer["size"] in ("small", "big")


@pytest.mark.parametrize(
    ("choice", "reason"),
    [("required", "tool_calls"), ({"type": "function", "function": {"name": "get_weather"}}, "stop")],
)
async def test_a_forced_tool_is_called(chat: VllmChat, choice: Any, reason: str) -> None:
    job = ask("What is the weather in Paris?", tools=[WEATHER], tool_choice=choice, max_tokens=48)
    reply = await chat.complete(job)
    (answer,) = reply.body["choices"]
    (call,) = answer["message"]["tool_calls"]
    assert answer["message"]["content"] is None
    assert answer["finish_reason"] == reason
    assert call["function"]["name"] == "get_weather"
    arguments = json.loads(call["function"]["arguments"])
    assert isinstance(arguments["city"], str)

    chunks = chunks_of(await batches(chat, job))
    (streamed,) = calls_of(chunks)
    assert streamed["id"]
    assert (streamed["name"], json.loads(streamed["arguments"])) == ("get_weather", arguments)
    assert chunks[-1]["choices"][0]["finish_reason"] == reason


CODE = {"type": "custom", "custom": {"name": "run_code", "description": "Runs a line of Python"}}


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "custom", "custom": {"name": "run_code"}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [CODE]}},
    ],
)
async def test_a_custom_tool_is_called_with_text(chat: VllmChat, choice: Any) -> None:
    job = ask("Run this line: print(1 + 2)", tools=[WEATHER, CODE], tool_choice=choice, max_tokens=240)
    reply = await chat.complete(job)
    parsed = ChatCompletion.model_validate(reply.body)  # as the SDK of OpenAI reads it
    (call,) = parsed.choices[0].message.tool_calls or ()
    assert call.type == "custom"
    assert call.custom.name == "run_code"
    chunks = chunks_of(await batches(chat, job))
    sent = [part for c in chunks for one in c["choices"] for part in one["delta"].get("tool_calls", [])]
    assert (sent[0]["type"], sent[0]["custom"]["name"]) == ("custom", "run_code")
    assert not [part for part in sent if "function" in part]
    assert "".join(part["custom"]["input"] for part in sent) == call.custom.input


async def test_a_custom_tools_answer_is_read(chat: VllmChat) -> None:
    call = {"id": "c1", "type": "custom", "custom": {"name": "run_code", "input": 'print("snowy")'}}
    turns = [
        {"role": "user", "content": "What is the weather in Paris?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "The weather in Paris is snowy."},
    ]
    reply = await chat.complete(ask(messages=turns, tools=[CODE, WEATHER]))
    assert "snow" in reply.body["choices"][0]["message"]["content"]


@pytest.mark.parametrize("regex", [r"^[A-Z][a-z]{2,9}\.$", "(Paris|Rome)+", "(?i)par(is|ma)"])
async def test_an_answer_follows_a_regular_expression(chat: VllmChat, regex: str) -> None:
    job = ask(structured_outputs={"regex": regex})
    answer = (await chat.complete(job)).body["choices"][0]["message"]["content"]
    assert re.match(regex, answer)
    assert text_of(chunks_of(await batches(chat, job))) == answer


async def test_an_answer_is_one_of_several(chat: VllmChat) -> None:
    texts = ["Rome, not Athens", 'Paris "the city"', "Berlin\n"]
    job = ask(structured_outputs={"choice": texts})
    answer = (await chat.complete(job)).body["choices"][0]["message"]["content"]
    assert answer in texts
    assert text_of(chunks_of(await batches(chat, job))) == answer


@pytest.mark.parametrize("regex", [r"\p{L}", ".*a.{20}", "(a{1000}){1000}", "(" * 1000, "a(?!)"])
async def test_a_regular_expression_that_cannot_be_followed_is_the_clients_fault(
    chat: VllmChat, regex: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat._grammars, "_cpu_s", 1)
    with pytest.raises(ApiError) as caught:
        await chat.complete(ask(structured_outputs={"regex": regex}))
    assert (caught.value.fault.status, caught.value.param) == (400, "structured_outputs.regex")
    assert "the regular expression" in caught.value.message


async def test_a_tools_answer_is_read(chat: VllmChat) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    turns = [
        {"role": "user", "content": "What is the weather in Paris?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "The weather in Paris is snowy."},
    ]
    reply = await chat.complete(ask(messages=turns, tools=[WEATHER]))
    assert "snow" in reply.body["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"properties": {"a": {"$ref": "#/$defs/nowhere"}}},
        {"properties": {"a": {"type": "string", "pattern": "[^\\s\\S]"}}, "required": ["a"]},
        {
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"anyOf": [{"items": {"$ref": "#/$defs/a"}}] * 96}},
        },
    ],
    ids=["no type", "no definition", "no answer", "many readings"],
)
async def test_a_schema_that_cannot_be_followed_is_the_clients_fault(chat: VllmChat, schema: dict[str, Any]) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"} | schema}}]
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    for param, fields in {
        "tools": {"tools": tools, "tool_choice": "required"},
        "response_format": {"response_format": form},
    }.items():
        for call in (chat.complete(ask(**fields)), batches(chat, ask(**fields)), anext(chat.counted(ask(**fields)))):
            with pytest.raises(ApiError) as caught:
                await call
            assert caught.value.fault.status == 400
            assert str(caught.value.param).startswith(param)
    assert "Paris" in (await chat.complete(ask())).body["choices"][0]["message"]["content"]


async def test_the_schema_that_cannot_be_followed_is_named(chat: VllmChat) -> None:
    schemas = [{"type": "object"}, {"type": "object", "properties": {"a": {"type": "nonsense"}}}]
    tools = [{"type": "function", "function": {"name": f"f{i}", "parameters": s}} for i, s in enumerate(schemas)]
    with pytest.raises(ApiError) as caught:
        await chat.complete(ask(tools=tools, tool_choice="required"))
    assert caught.value.param == "tools[1].function.parameters"
    tools[1]["function"]["strict"] = False
    assert await chat.complete(ask(tools=tools, tool_choice="required", max_tokens=48))


async def test_json_mode_answers_beside_schema_bombs(chat: VllmChat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemas that the contract lets through, and that cannot be compiled in the time there is."""
    monkeypatch.setattr(chat._grammars, "_cpu_s", 3)

    def bomb(i: int) -> ChatJob:
        fields = {f"f{k}": {"type": "string", "maxLength": 300 + 20 * i + k} for k in range(15)}
        schema = {"type": "object", "properties": fields}
        form = {"type": "json_schema", "json_schema": {"name": "bomb", "schema": schema}}
        return replace(ask(response_format=form), owner="attacker")

    async def other() -> float:
        began = time.monotonic()
        assert await chat.complete(ask(response_format={"type": "json_object"}, max_tokens=1))
        return time.monotonic() - began

    await other()
    alone_s = max([await other() for _ in range(5)])
    bombs = [asyncio.create_task(chat.complete(bomb(i))) for i in range(100)]
    await until(lambda: sum(task.done() for task in bombs) > 80)
    beside_s = max([await other() for _ in range(10)])
    print(f"json_object alone {alone_s:.3f} s, beside bombs {beside_s:.3f} s")
    assert not all(task.done() for task in bombs)
    sent_away = [task.exception() for task in bombs if task.done()]
    statuses = {error.fault.status for error in sent_away if isinstance(error, ApiError)}
    assert 429 in statuses
    assert statuses <= {400, 429}  # on a slow machine the first of those that have a turn have been given up by now
    with pytest.raises(ApiError) as caught:
        await bombs[0]
    assert (caught.value.fault.status, caught.value.param) == (400, "response_format")
    assert "longer than 10 s to compile" in caught.value.message
    for task in bombs:
        task.cancel()
    await asyncio.gather(*bombs, return_exceptions=True)
    assert "Paris" in (await chat.complete(ask())).body["choices"][0]["message"]["content"]


async def test_long_compilations_leave_room_for_short_ones(chat: VllmChat) -> None:
    """As many as the children let through at a time, and the engine still compiles for somebody else."""
    executor = chat._engine.engine_core.engine_core.structured_output_manager.executor
    over = threading.Event()
    long = [executor.submit(over.wait, 60) for _ in range(CHILDREN)]
    try:
        assert await chat.complete(ask(response_format={"type": "json_object"}, max_tokens=1))
        assert not any(compilation.done() for compilation in long)
    finally:
        over.set()


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


@pytest.mark.parametrize("streamed", [False, True])
async def test_several_answers_find_nothing_cached_that_they_left_themselves(chat: VllmChat, streamed: bool) -> None:
    job = replace(ask("Tell me of seas. " * 40, n=3, temperature=1, max_tokens=2), owner=f"new-{streamed}")
    first = (await batches(chat, job))[-1] if streamed else await chat.complete(job)
    again = (await batches(chat, job))[-1] if streamed else await chat.complete(job)
    assert first.cached_tokens == 0 < again.cached_tokens < again.prompt_tokens


async def test_sampling_fields_of_vllm_have_their_effect(chat: VllmChat) -> None:
    async def told(**fields: Any) -> str:
        job = ask("Tell me a story.", temperature=1.5, seed=7, max_tokens=12, **fields)
        return str((await chat.complete(job)).body["choices"][0]["message"]["content"])

    greedy = (await chat.complete(ask("Tell me a story.", max_tokens=12))).body["choices"][0]["message"]["content"]
    free = await told()
    assert await told(top_k=1) == await told(min_p=1) == greedy != free
    assert await told(top_k=0) == await told(top_k=-1) == await told(min_p=0) == free
    repeats = ask("Say yes yes yes yes yes.", max_tokens=12)
    assert (await chat.complete(repeats)).body["choices"] != (
        await chat.complete(replace(repeats, request=repeats.request.model_copy(update={"repetition_penalty": 2.0})))
    ).body["choices"]


async def test_a_client_that_leaves_a_stream_frees_the_engine(chat: VllmChat) -> None:
    stream = chat.stream(ask("Count to a thousand.", n=2, max_tokens=400))
    async for batch in stream:
        if batch.completion_tokens >= 4:
            break
    assert chat.unfinished
    await stream.aclose()  # type: ignore[attr-defined]
    await idle(chat)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_cancelled_call_frees_the_engine(chat: VllmChat, streamed: bool) -> None:
    job = ask("Count to a thousand.", max_tokens=400)
    task = asyncio.ensure_future(batches(chat, job) if streamed else chat.complete(job))
    await until(lambda: chat.unfinished > 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await idle(chat)


async def test_a_whole_answer_says_how_far_it_is(chat: VllmChat) -> None:
    job = ask("Count to a thousand.", max_tokens=200)
    *counts, reply = [count async for count in chat.counted(job)]
    assert isinstance(reply, ChatReply)
    assert reply.text == (await chat.complete(job)).text
    so_far = [count.completion_tokens for count in counts if isinstance(count, ChatBatch)]
    assert len(so_far) == len(counts) > 0
    assert sorted({*so_far}) == so_far
    assert 0 < so_far[0] <= so_far[-1] <= reply.completion_tokens
    assert {count.prompt_tokens for count in counts} == {reply.prompt_tokens}


async def test_a_client_that_leaves_a_counted_answer_frees_the_engine(chat: VllmChat) -> None:
    counts = chat.counted(ask("Count to a thousand.", max_tokens=400))
    assert (await anext(counts)).completion_tokens > 0
    assert chat.unfinished
    await counts.aclose()
    await idle(chat)


async def test_many_at_once_do_not_mix(chat: VllmChat) -> None:
    words = ["apple", "river", "stone", "train", "cloud", "music", "paper", "green", "night", "bread", "horse", "glass"]

    async def repeat(word: str) -> str:
        return text_of(chunks_of(await batches(chat, ask(f"Say only this word: {word}", max_tokens=8))))

    together = await asyncio.gather(*map(repeat, words))
    for word, answer in zip(words, together, strict=True):
        assert not [other for other in words if other != word and other in answer.lower()]


async def test_images_need_a_model_that_sees(chat: VllmChat) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(ApiError, match="message 0") as caught:
        await chat.complete(ask([{"type": "text", "text": "what?"}, image]))
    assert caught.value.fault.status == 400


async def test_a_healthy_engine_that_stands_still_is_not_healthy(
    chat: VllmChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.check_health()
    core = chat._engine.engine_core
    held, go_on = threading.Event(), threading.Event()
    core._command(lambda: (held.set(), go_on.wait()))
    try:
        assert held.wait(30)
        pending = asyncio.ensure_future(chat.complete(ask(max_tokens=1)))
        await until(lambda: core.busy)
        await chat.check_health()
        monkeypatch.setattr(core.stalls, "limit_s", 0.0)
        with pytest.raises(RuntimeError, match="no step"):
            await chat.check_health()
    finally:
        go_on.set()
    await pending


async def test_z_the_death_of_the_engine_reaches_everyone(chat: VllmChat) -> None:
    waiting = [asyncio.ensure_future(chat.complete(ask("Count.", max_tokens=400))) for _ in range(2)]
    streaming = asyncio.ensure_future(batches(chat, ask("Count.", max_tokens=400)))
    await until(lambda: chat.unfinished == 3)

    def die() -> None:
        raise RuntimeError("out of memory")

    chat._engine.engine_core._command(die)
    for result in await asyncio.gather(*waiting, streaming, return_exceptions=True):
        assert isinstance(result, ApiError)
        assert result.fault.status == 502
        assert "memory" not in result.message
    with pytest.raises(Exception, match=r"EngineCore|engine"):
        await chat.check_health()
    with pytest.raises(ApiError) as caught:
        await chat.complete(ask())
    assert caught.value.fault.status == 502
