"""Answers in a form that the client asks for: schemas, expressions, tools; and forms that cannot be followed."""

import asyncio
import json
import re
import threading
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from models.chat import VllmChat
from models.llm.grammars import CHILDREN, QueueFull, Refused
from tests.contract.bodies import tool
from tests.models.chat.smollm2.asking import WEATHER, ask, batches, calls_of, chunks_of, said, said_in_pieces
from tests.models.refusals import refused
from tests.waiting import until

SCHEMA = {
    "type": "object",
    "properties": {"capital": {"type": "string", "maxLength": 12}, "size": {"enum": ["small", "big"]}},
    "required": ["capital", "size"],
    "additionalProperties": False,
}
CAPITAL = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}


async def test_an_answer_follows_its_schema(chat: VllmChat) -> None:
    answer = json.loads(await said(chat, ask(response_format=CAPITAL, max_tokens=80)))
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


async def test_a_function_that_takes_nothing_is_called_with_an_empty_object(chat: VllmChat) -> None:
    nothing = (None, None), ({}, False), ({"description": "none"}, None), ({"type": "object", "properties": {}}, None)
    choices: tuple[Any, ...] = "required", {"type": "function", "function": {"name": "now"}}
    for (parameters, strict), choice in product(nothing, choices):
        tools = [tool("now", description="The time in Rome", parameters=parameters, strict=strict)]
        job = ask("What time is it in Rome?", tools=tools, tool_choice=choice, parallel_tool_calls=False, max_tokens=48)
        (answer,) = (await chat.complete(job)).body["choices"]
        (call,) = answer["message"]["tool_calls"]
        (streamed,) = calls_of(chunks_of(await batches(chat, job)))
        arguments = call["function"]["arguments"], streamed["arguments"]
        assert [*map(json.loads, arguments)] == [{}, {}], (parameters, strict, choice)


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


async def test_a_tools_answer_is_read(chat: VllmChat) -> None:
    for call in (
        {"type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}},
        {"type": "custom", "custom": {"name": "run_code", "input": 'print("snowy")'}},
    ):
        turns = [
            {"role": "user", "content": "What is the weather in Paris?"},
            {"role": "assistant", "tool_calls": [{"id": "c1"} | call]},
            {"role": "tool", "tool_call_id": "c1", "content": "The weather in Paris is snowy."},
        ]
        assert "snow" in await said(chat, ask(messages=turns, tools=[CODE, WEATHER])), call["type"]


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


TOO_LONG = {"type": "string", "minLength": 3, "maxLength": 2}
UNFOLLOWABLE: list[tuple[dict[str, Any], str]] = [
    ({"type": "nonsense"}, " is not supported at `type`"),
    ({"properties": {"a": TOO_LONG}}, " is not supported at `properties.a.maxLength`"),
    (
        {"$defs": {"d": TOO_LONG}, "properties": {"e": {"$ref": "#/$defs/d"}}},
        " is not supported at `$defs.d.maxLength`",
    ),
    (
        {"properties": {"a": {"$ref": "#"}, "b": {"type": "string", "pattern": "(a"}}},
        " is not supported at `properties.b.pattern`",
    ),
    (
        {"properties": {"a": {"type": "string", "pattern": "[^\\s\\S]"}}, "required": ["a"]},
        " has a part that no answer",
    ),
    (
        {
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"anyOf": [{"items": {"$ref": "#/$defs/a"}}] * 96}},
        },
        " is too slow to apply",
    ),
]
"""Schemas, and what is said of them."""


async def test_a_schema_that_cannot_be_followed_is_the_clients_fault_and_its_place_is_named(chat: VllmChat) -> None:
    for members, why in UNFOLLOWABLE:
        schema = {"type": "object"} | members
        tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        for param, fields in {
            "tools[0].function.parameters": {"tools": tools, "tool_choice": "required"},
            "response_format": {"response_format": form},
        }.items():
            job = ask(**fields)
            for call in (chat.complete(job), batches(chat, job), anext(chat.counted(job))):
                with refused(400, param=param) as caught:
                    await call
                assert caught.value.message.startswith(f"the JSON schema in `{param}`{why}")
    assert "Paris" in await said(chat, ask())


async def test_of_several_schemas_the_one_that_cannot_be_followed_is_named_unless_it_need_not_be(
    chat: VllmChat,
) -> None:
    schemas = [{"type": "object"}, {"type": "object", "properties": {"a": {"type": "nonsense"}}}]
    tools = [{"type": "function", "function": {"name": f"f{i}", "parameters": s}} for i, s in enumerate(schemas)]
    with refused(400, r"not supported at `properties\.a\.type`", param="tools[1].function.parameters"):
        await chat.complete(ask(tools=tools, tool_choice="required"))
    tools[1]["function"]["strict"] = False
    assert await chat.complete(ask(tools=tools, tool_choice="required", max_tokens=48))
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer", "multipleOf": 5}}}
    with refused(400, "in `response_format` is not supported at `multipleOf`", param="response_format"):
        await chat.complete(ask(response_format=form))


async def test_a_reference_with_escapes_is_followed(chat: VllmChat) -> None:
    schema = {
        "$defs": {"a/b ~": {"enum": ["yes"]}},
        "properties": {"x": {"$ref": "#/$defs/a~1b%20~0"}},
        "required": ["x"],
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    assert json.loads(await said(chat, ask(response_format=form))) == {"x": "yes"}


async def test_what_takes_too_long_too_much_memory_or_waits_in_a_crowd_is_told_apart(
    chat: VllmChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = []
    for failure, by, says in (
        (Refused("time"), 400, "in `response_format` takes longer than 10 s to compile"),
        (Refused("memory"), 400, "in `response_format` takes too much memory to compile"),
        (QueueFull(), "BUSY", "too many grammars wait to be compiled"),
    ):

        async def check(_kind: str, _spec: str, owner: str, failure: Exception = failure) -> None:
            owners.append(owner)
            raise failure

        monkeypatch.setattr(chat._grammars, "check", check)
        with refused(by, says):
            await chat.complete(replace(ask(response_format=CAPITAL), owner="org-1"))
    assert owners == ["org-1"] * 3, "organisations wait apart"


async def test_long_compilations_are_few_and_leave_room_for_what_is_known(
    chat: VllmChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, over, under_way = ask(response_format={"type": "json_object"}, max_tokens=1), threading.Event(), list[str]()
    await chat.complete(known)
    grammars, compile = chat._grammars, chat._grammars._compile_in_engine

    def wait(kind: str, spec: str) -> None:
        under_way.append(spec)
        assert over.wait(60)
        compile(kind, spec)

    monkeypatch.setattr(grammars, "_compile_in_engine", wait)
    long = ask(response_format=CAPITAL)
    answers = [asyncio.create_task(chat.complete(replace(long, owner=f"org-{i}"))) for i in range(CHILDREN + 1)]
    try:
        await until(lambda: len(under_way) == CHILDREN)
        assert await chat.complete(known)
        assert len(under_way) == CHILDREN
        assert not any(answer.done() for answer in answers)
    finally:
        over.set()
    assert all(await asyncio.gather(*answers))
