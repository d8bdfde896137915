"""Answers in a form that the client asks for: schemas, expressions, tools; and forms that cannot be followed."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from dataclasses import replace
from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from contract.chat.engine import ChatJob
from contract.errors import ApiError
from models.chat import VllmChat
from models.llm.grammars import CHILDREN, OWNER_WAITING
from tests.contract.bodies import tool
from tests.models.chat.smollm2.asking import WEATHER, ask, batches, chunks_of, said, said_in_pieces
from tests.models.refusals import refused
from tests.waiting import until


def calls_of(chunks: list[dict[str, Any]]) -> list[dict[str, str]]:
    calls: list[dict[str, str]] = []
    for delta in (choice["delta"] for chunk in chunks for choice in chunk["choices"]):
        for part in delta.get("tool_calls", []):
            if part["index"] == len(calls):
                assert part["type"] == "function"
                calls.append({"id": part["id"], "name": part["function"]["name"], "arguments": ""})
            calls[part["index"]]["arguments"] += part["function"]["arguments"]
    return calls


async def test_an_answer_follows_its_schema(chat: VllmChat) -> None:
    schema = {
        "type": "object",
        "properties": {"capital": {"type": "string", "maxLength": 12}, "size": {"enum": ["small", "big"]}},
        "required": ["capital", "size"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    answer = json.loads(await said(chat, ask(response_format=form, max_tokens=80)))
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


@pytest.mark.parametrize(
    ("parameters", "strict"),
    [(None, None), ({}, False), ({"description": "none"}, None), ({"type": "object", "properties": {}}, None)],
)
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "now"}}])
async def test_a_function_that_takes_nothing_is_called_with_an_empty_object(
    chat: VllmChat, parameters: Any, strict: bool | None, choice: Any
) -> None:
    tools = [tool("now", description="The time in Rome", parameters=parameters, strict=strict)]
    job = ask("What time is it in Rome?", tools=tools, tool_choice=choice, parallel_tool_calls=False, max_tokens=48)
    (answer,) = (await chat.complete(job)).body["choices"]
    (call,) = answer["message"]["tool_calls"]
    (streamed,) = calls_of(chunks_of(await batches(chat, job)))
    assert json.loads(call["function"]["arguments"]) == json.loads(streamed["arguments"]) == {}


async def test_an_answer_that_is_cut_amid_its_calls_has_those_that_a_stream_has(chat: VllmChat) -> None:
    """Some of them end inside the name, the arguments, or a second call. None shows how the model spells a call."""
    for most in (3, 12, 20, 26, 34):
        job = ask("What is the weather in Paris?", tools=[WEATHER], tool_choice="required", max_tokens=most)
        (answer,) = (await chat.complete(job)).body["choices"]
        calls = [call["function"] for call in answer["message"].get("tool_calls", [])]
        streamed = calls_of(chunks_of(await batches(chat, job)))
        assert calls == [{"name": call["name"], "arguments": call["arguments"]} for call in streamed], most
        assert not answer["message"]["content"]
        assert bool(calls) == (most > 12)  # the name is whole


async def test_whitespace_between_parts_of_an_answer_ends(chat: VllmChat) -> None:
    """Sampled as flatly as can be, a model that may write spaces would write them for ever."""
    schema = {"type": "object", "properties": {"size": {"enum": [1, 2]}}, "required": ["size"]}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    job = ask(response_format=form, max_tokens=160, temperature=2, n=8, seed=1)
    for choice in (await chat.complete(job)).body["choices"]:
        assert json.loads(choice["message"]["content"] or "")["size"] in (1, 2)
    free = ask(response_format={"type": "json_object"}, max_tokens=64, temperature=2, n=8, seed=1)
    for choice in (await chat.complete(free)).body["choices"]:
        assert not re.search(r"\s{17}", re.sub(r'"[^"]*"?', '""', choice["message"]["content"] or ""))


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


@pytest.mark.parametrize(
    "call",
    [
        {"type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}},
        {"type": "custom", "custom": {"name": "run_code", "input": 'print("snowy")'}},
    ],
)
async def test_a_tools_answer_is_read(chat: VllmChat, call: dict[str, Any]) -> None:
    turns = [
        {"role": "user", "content": "What is the weather in Paris?"},
        {"role": "assistant", "tool_calls": [{"id": "c1"} | call]},
        {"role": "tool", "tool_call_id": "c1", "content": "The weather in Paris is snowy."},
    ]
    assert "snow" in await said(chat, ask(messages=turns, tools=[CODE, WEATHER]))


async def test_an_answer_follows_a_regular_expression_or_is_one_of_several(chat: VllmChat) -> None:
    texts = ["Rome, not Athens", 'Paris "the city"', "Berlin\n"]
    forms = [{"regex": regex} for regex in (r"^[A-Z][a-z]{2,9}\.$", "(Paris|Rome)+", "(?i)par(is|ma)")]
    for form in (*forms, {"choice": texts}):
        job = ask(structured_outputs=form)
        answer = await said(chat, job)
        assert re.match(form["regex"], answer) if "regex" in form else answer in texts
        assert await said_in_pieces(chat, job) == answer


async def test_a_regular_expression_that_cannot_be_followed_is_the_clients_fault(
    chat: VllmChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat._grammars, "_cpu_s", 1)
    for regex in (r"\p{L}", ".*a.{20}", "(a{1000}){1000}", "(" * 1000, "a(?!)"):
        with refused(400, "the regular expression", param="structured_outputs.regex"):
            await chat.complete(ask(structured_outputs={"regex": regex}))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"properties": {"a": {"type": "string", "minLength": 3, "maxLength": 2}}},
        {"properties": {"a": {"type": "string", "pattern": "[^\\s\\S]"}}, "required": ["a"]},
        {
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"anyOf": [{"items": {"$ref": "#/$defs/a"}}] * 96}},
        },
    ],
    ids=["no type", "no length", "no answer", "many readings"],
)
async def test_a_schema_that_cannot_be_followed_is_the_clients_fault(chat: VllmChat, schema: dict[str, Any]) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"} | schema}}]
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    for param, fields in {
        "tools": {"tools": tools, "tool_choice": "required"},
        "response_format": {"response_format": form},
    }.items():
        for call in (chat.complete(ask(**fields)), batches(chat, ask(**fields)), anext(chat.counted(ask(**fields)))):
            with refused(400) as caught:
                await call
            assert str(caught.value.param).startswith(param)
    assert "Paris" in await said(chat, ask())


async def test_the_schema_that_cannot_be_followed_is_named(chat: VllmChat) -> None:
    schemas = [{"type": "object"}, {"type": "object", "properties": {"a": {"type": "nonsense"}}}]
    tools = [{"type": "function", "function": {"name": f"f{i}", "parameters": s}} for i, s in enumerate(schemas)]
    with pytest.raises(ApiError) as caught:
        await chat.complete(ask(tools=tools, tool_choice="required"))
    assert caught.value.param == "tools[1].function.parameters"
    assert (
        caught.value.message
        == "the JSON schema in `tools[1].function.parameters` is not supported at `properties.a.type`"
    )
    tools[1]["function"]["strict"] = False
    assert await chat.complete(ask(tools=tools, tool_choice="required", max_tokens=48))


OTHER = {"$defs": {"d": {"type": "string", "minLength": 3, "maxLength": 2}}, "properties": {"e": {"$ref": "#/$defs/d"}}}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "integer", "multipleOf": 5}, "multipleOf"),
        (
            {"properties": {"a": {"items": [{"type": "array", "uniqueItems": True}]}}},
            "properties.a.items[0].uniqueItems",
        ),
        ({"properties": {"a": {"anyOf": [{}, {"type": "nonsense"}]}}}, "properties.a.anyOf[1].type"),
        (OTHER, "$defs.d.maxLength"),
        ({"properties": {"a": {"$ref": "#"}, "b": {"type": "string", "pattern": "(a"}}}, "properties.b.pattern"),
    ],
)
async def test_a_keyword_that_cannot_be_followed_is_named_with_its_place(
    chat: VllmChat, schema: dict[str, Any], place: str
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"} | schema}}
    with refused(400, param="response_format") as caught:
        await chat.complete(ask(response_format=form))
    assert caught.value.message == f"the JSON schema in `response_format` is not supported at `{place}`"


async def test_a_reference_with_escapes_is_followed(chat: VllmChat) -> None:
    schema = {
        "$defs": {"a/b ~": {"enum": ["yes"]}},
        "properties": {"x": {"$ref": "#/$defs/a~1b%20~0"}},
        "required": ["x"],
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    assert json.loads(await said(chat, ask(response_format=form))) == {"x": "yes"}


async def test_json_mode_answers_beside_schema_bombs(chat: VllmChat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat._grammars, "_cpu_s", 3)

    def bomb(i: int) -> ChatJob:
        fields = {f"f{k}": {"type": "string", "maxLength": 300 + 20 * i + k} for k in range(15)}
        schema = {"type": "object", "properties": fields}
        form = {"type": "json_schema", "json_schema": {"name": "bomb", "schema": schema}}
        return replace(ask(response_format=form), owner="attacker")

    async def other() -> None:
        assert await chat.complete(ask(response_format={"type": "json_object"}, max_tokens=1))

    await other()
    bombs = [asyncio.create_task(chat.complete(bomb(i))) for i in range(100)]
    await until(lambda: sum(task.done() for task in bombs) >= 100 - OWNER_WAITING - 1)  # the others were refused
    before = sum(task.done() for task in bombs)
    for _ in range(10):
        await other()
    gone = sum(task.done() for task in bombs) - before
    assert gone <= 4, f"{gone} bombs were given up while ten others were answered: they had to wait for them"
    assert not all(task.done() for task in bombs)
    sent_away = [task.exception() for task in bombs if task.done()]
    statuses = {error.fault.status for error in sent_away if isinstance(error, ApiError)}
    assert 429 in statuses
    assert statuses <= {400, 429}  # on a slow machine the first of those that have a turn have been given up by now
    with refused(400, param="response_format") as caught:
        await bombs[0]
    assert "longer than 10 s to compile" in caught.value.message
    for task in bombs:
        task.cancel()
    await asyncio.gather(*bombs, return_exceptions=True)
    assert "Paris" in await said(chat, ask())


async def test_long_compilations_leave_room_for_short_ones(chat: VllmChat) -> None:
    executor = chat.engine.engine_core.engine_core.structured_output_manager.executor
    over = threading.Event()
    long = [executor.submit(over.wait, 60) for _ in range(CHILDREN)]
    try:
        assert await chat.complete(ask(response_format={"type": "json_object"}, max_tokens=1))
        assert not any(compilation.done() for compilation in long)
    finally:
        over.set()
