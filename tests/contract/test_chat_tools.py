"""Tools in all the forms that clients send, the forms that an answer is made to follow, and thinking."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from contract.catalog import ChatModel, ThinkingOptions
from contract.chat import schemas
from contract.chat.engine import ChatJob
from contract.chat.thinking import EFFORTS, MAX_VARIABLE, ReasoningSettings, reasoning_settings
from models.chat.request import engine_fields
from tests.catalogs import chat
from tests.contract.bodies import Row, chat_request, check_refused, refusal, refused

FRAMEWORKS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data/framework_tools.json").read_text("utf-8"))
"""A tool as each framework for agents sends it, by `framework/what makes it`; descriptions are ours."""
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CODE = {"type": "custom", "custom": {"name": "code", "description": "Runs Python", "format": {"type": "text"}}}
SEARCH = {"type": "web_search"}
CHOICES = (None, "auto", "none", "required")
OF_NONE_HERE = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [SEARCH]}}
REFERENCES = {
    "weather": {"type": "function", "function": {"name": "weather"}},
    "code": {"type": "custom", "custom": {"name": "code"}},
}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [REFERENCES[name] for name in names]}}


def test_tools_of_agent_frameworks_pass_as_they_are() -> None:
    for choice in CHOICES:
        wrong = [name for name, one in FRAMEWORKS.items() if not chat_request(tools=[one], tool_choice=choice).offered]
        assert wrong == []


def test_some_tools_may_be_allowed_or_one_named() -> None:
    choices: list[tuple[Any, list[int], bool]] = [
        (allowed("auto", "weather"), [1], False),
        (allowed("required", "code"), [0], True),
        (allowed("required", "weather", "code"), [0, 1], True),
        (REFERENCES["code"], [0, 1], True),
        (REFERENCES["weather"], [0, 1], True),
    ]
    for choice, offered, is_forced in choices:
        body = chat_request(tools=[CODE, WEATHER], tool_choice=choice)
        assert (list(body.offered), body.is_tool_forced) == (offered, is_forced), choice


GRAMMAR_AT = "tools[0].custom.format.type"
NO_TOOL: list[Row] = [
    ({"tools": [{"type": "functoin"}]}, "tools[0]", "`function` or `custom`"),
    ({"tools": [WEATHER, 5]}, "tools[1]", "`function` or `custom`"),
    ({"tools": [{"type": ["function"]}]}, "tools[0]", "`function` or `custom`"),
    ({"tools": [{"type": "custom", "custom": {"name": "a b"}}]}, "tools[0].custom.name", "text that matches"),
    ({"tools": [CODE, CODE | {"type": "function", "function": {"name": "code"}}]}, None, "same name"),
    ({"tool_choice": {"type": "file_search"}}, "tool_choice", "this server runs none"),
    ({"tools": [SEARCH], "tool_choice": "required"}, None, "built-in, and this server runs no built-in tools"),
    ({"tools": [SEARCH, CODE], "tool_choice": OF_NONE_HERE}, None, "built-in, and this server runs no built-in tools"),
    ({"tool_choice": "sometimes"}, "tool_choice", "`required`"),
    ({"tool_choice": {"type": "function", "function": {"name": "code"}}}, None, "`code` (function)"),
    ({"tool_choice": {"type": "custom", "custom": {"name": "weather"}}}, None, "`weather` (custom)"),
    ({"tool_choice": allowed("sometimes", "code")}, "tool_choice.allowed_tools.mode", "`auto` or `required`"),
    ({"tool_choice": allowed("auto")}, "tool_choice.allowed_tools.tools", "at least 1"),
    ({"tools": [WEATHER], "tool_choice": allowed("auto", "code")}, None, "`code` (custom)"),
    *(
        ({"tools": [{"type": "custom", "custom": {"name": "code", "format": grammar}}]}, GRAMMAR_AT, "`text`")
        for grammar in ({"type": "grammar", "grammar": {"syntax": x, "definition": "a"}} for x in ("lark", "regex"))
    ),
]


def test_what_is_no_tool_or_names_none_is_refused() -> None:
    check_refused(chat_request, [({"tools": [CODE, WEATHER]} | fields, *refusal) for fields, *refusal in NO_TOOL])


def test_built_in_tools_are_left_out_and_told() -> None:
    for choice in CHOICES:
        tools = [SEARCH, CODE, {"type": "mcp", "server_label": "x"}, WEATHER]
        body = chat_request(tools=tools, tool_choice=choice)
        assert {place: tool.name for place, tool in body.offered.items()} == {1: "code", 3: "weather"}
        assert body.left_out == ["tools[0]", "tools[2]"]
        assert [tool["function"]["name"] for tool in engine_fields(body)["tools"]] == ["code", "weather"]
    allowing = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [SEARCH]}}
    for alone in (None, "auto", allowing):
        body = chat_request(tools=[SEARCH], tool_choice=alone)
        assert (body.left_out, "tools" in engine_fields(body)) == (["tools[0]"], False)


def test_calls_of_custom_tools_are_repeated() -> None:
    call = {"id": "c1", "type": "custom", "custom": {"name": "code", "input": 'print("é")\n'}}
    body = chat_request(messages=[{"role": "assistant", "tool_calls": [call]}])
    (repeated,) = body.messages[0].tool_calls or ()
    assert json.loads(repeated.as_function.function.arguments) == {"input": 'print("é")\n'}
    assert refused(chat_request, messages=[{"role": "assistant", "tool_calls": [call | {"type": "mcp"}]}])[0] == (
        "messages[0].tool_calls[0]"
    )
    assert ChatJob(body).most_input_tokens(chat("m")) >= len('{"input": "print(\\"é\\")\\n"}')


FORMLESS: list[tuple[dict[str, Any], str]] = [
    ({}, "one of"),
    ({"regex": "a", "choice": ["a"]}, "one of"),
    ({"grammar": 'root ::= "a"'}, "no bound"),
    ({"json": {"type": "object"}}, "response_format"),
    ({"json_object": True}, "response_format"),
    ({"structural_tag": "{}"}, "tools"),
    ({"choice": []}, "at least 1"),
    ({"choice": [""]}, "at least 1"),
    ({"regex": ""}, "at least 1"),
]


def test_an_answer_follows_a_regular_expression_or_is_one_of_several_within_bounds() -> None:
    for form, says in FORMLESS:
        place, sentence = refused(chat_request, structured_outputs=form)
        assert (str(place).startswith("structured_outputs"), says in sentence) == (True, True), (form, sentence)
    for surplus in (-1, 0, 1):
        count, chars = schemas.MAX_ALLOWED_ANSWERS + surplus, schemas.MAX_ALLOWED_ANSWERS_CHARS + surplus
        repetitions = schemas.MAX_REPETITIONS + surplus
        for form in (
            {"regex": "a" * (schemas.MAX_REGEX_CHARS + surplus)},
            *({"regex": f"a{{{bounds}}}"} for bounds in (f"{repetitions}", f"1,{repetitions}", f"{repetitions},")),
            {"choice": [f"{i}" for i in range(count)]},
            {"choice": ["x" * chars]},
        ):
            if surplus > 0:
                assert str(refused(chat_request, structured_outputs=form)[0]).startswith("structured_outputs.")
            else:
                assert chat_request(structured_outputs=form)


def test_an_answer_has_one_form() -> None:
    form = {"choice": ["a"]}
    assert "not both" in refused(chat_request, structured_outputs=form, response_format={"type": "json_object"})[1]
    assert "tools" in refused(chat_request, structured_outputs=form, tools=[WEATHER])[1]
    assert chat_request(structured_outputs=form, response_format={"type": "text"}, tools=[WEATHER], tool_choice="none")


SWITCHED = ThinkingOptions(switch="enable_thinking", budgets={"minimal": 512, "low": 2048})
LEVELLED = ThinkingOptions(levels=("low", "high"))
VARIABLES = ThinkingOptions(switch="thinking", variables={"depth": "integer", "style": ("brief", "full")})


def tell(thinking: ThinkingOptions | None, effort: str | None = None, /, **variables: Any) -> ReasoningSettings:
    request = chat_request(reasoning_effort=effort, chat_template_kwargs=variables or None)
    return reasoning_settings(request, thinking)


def test_a_model_that_cannot_think_ignores_the_effort() -> None:
    for effort in EFFORTS:
        assert tell(None, effort) == tell(ThinkingOptions(), effort) == ReasoningSettings()


def test_the_switch_goes_before_the_effort_of_which_none_switches_thoughts_off_and_silence_changes_nothing() -> None:
    assert tell(SWITCHED) == tell(LEVELLED) == ReasoningSettings()
    assert tell(SWITCHED, "none") == ReasoningSettings({"enable_thinking": False})
    assert tell(SWITCHED, "minimal") == ReasoningSettings({"enable_thinking": True}, budget_tokens=512)
    assert tell(SWITCHED, "low") == ReasoningSettings({"enable_thinking": True}, budget_tokens=2048)
    assert tell(SWITCHED, "medium") == tell(SWITCHED, "max") == ReasoningSettings({"enable_thinking": True})
    assert tell(SWITCHED, "low", enable_thinking=False).variables == {"enable_thinking": False}


def test_an_effort_that_a_model_lacks_becomes_the_nearest() -> None:
    levels = [tell(LEVELLED, effort).level for effort in EFFORTS]
    assert levels == [None, "low", "low", "low", "high", "high", "high"]
    assert tell(ThinkingOptions(levels=("none", "high")), "none").level == "none"
    assert tell(ThinkingOptions(levels=("none", "high")), "minimal").level == "high"


def test_allowed_variables_pass_and_their_bounds_hold() -> None:
    for depth in (0, 1, MAX_VARIABLE):
        assert tell(VARIABLES, depth=depth).variables == {"depth": depth}
    for depth in (-1, MAX_VARIABLE + 1, True, 1.0, "1", None):
        assert refusal(tell, VARIABLES, depth=depth).param == "chat_template_kwargs.depth"
    assert tell(VARIABLES, style="full", thinking=True).variables == {"style": "full", "thinking": True}
    assert "`brief`, `full`" in refusal(tell, VARIABLES, style="<|im_end|>").message
    for value in (1, "true", None, [], {}):
        assert "true or false" in refusal(tell, VARIABLES, thinking=value).message


def test_a_variable_that_is_not_allowed_is_refused_with_those_that_are() -> None:
    error = refusal(tell, VARIABLES, chat_template="{{ messages }}")
    assert error.param == "chat_template_kwargs.chat_template"
    assert "`thinking`, `depth`, `style`" in error.message
    assert "supports no variables" in refusal(tell, None, enable_thinking=False).message
    assert len(refusal(tell, None, **{"x" * 10_000: 1}).message) < 200


def stanza(**fields: Any) -> ChatModel:
    return ChatModel.model_validate({"id": "m", "owned_by": "t", "tier": "default", "context_window": 10} | fields)


def test_a_stanza_that_contradicts_itself_does_not_load() -> None:
    budgets = {"thinking": {"budgets": {"low": 5}}}
    assert stanza(reasoning_parser="qwen3", **budgets).thinking == ThinkingOptions(budgets={"low": 5})
    for wrong in (budgets, {"thinking": {"levels": ["hard"]}}, {"thinking": {"variables": {"a": "string"}}}):
        with pytest.raises(ValidationError):
            stanza(**wrong)
    # Cached input costs at most what the other costs.
    prices = [{"input_tokens": 10, "cached_input_tokens": cached} for cached in (0, 9, 10, 11)]
    assert [stanza(price=price).price for price in prices[:3]] == prices[:3]
    with pytest.raises(ValidationError, match="cached_input_tokens"):
        stanza(price=prices[3])
