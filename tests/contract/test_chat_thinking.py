"""What a request says of thinking, in the terms of a model that thinks this way or that."""

from typing import Any

import pytest
from pydantic import ValidationError

from contract.catalog import ChatModel, ThinkingOptions
from contract.chat.thinking import EFFORTS, MAX_VARIABLE, ReasoningSettings, reasoning_settings
from tests.contract.bodies import chat_request, refusal

SWITCHED = ThinkingOptions(switch="enable_thinking", budgets={"minimal": 512, "low": 2048})
LEVELLED = ThinkingOptions(levels=("low", "high"))
VARIABLES = ThinkingOptions(switch="thinking", variables={"depth": "integer", "style": ("brief", "full")})


def tell(thinking: ThinkingOptions | None, effort: str | None = None, /, **variables: Any) -> ReasoningSettings:
    request = chat_request(reasoning_effort=effort, chat_template_kwargs=variables or None)
    return reasoning_settings(request, thinking)


@pytest.mark.parametrize("effort", EFFORTS)
def test_a_model_that_cannot_think_ignores_the_effort(effort: str) -> None:
    assert tell(None, effort) == tell(ThinkingOptions(), effort) == ReasoningSettings()


def test_a_request_that_says_nothing_leaves_the_model_its_own_way() -> None:
    assert tell(SWITCHED) == tell(LEVELLED) == ReasoningSettings()


def test_no_effort_switches_thoughts_off_and_any_other_on() -> None:
    assert tell(SWITCHED, "none") == ReasoningSettings({"enable_thinking": False})
    assert tell(SWITCHED, "minimal") == ReasoningSettings({"enable_thinking": True}, budget_tokens=512)
    assert tell(SWITCHED, "low") == ReasoningSettings({"enable_thinking": True}, budget_tokens=2048)
    assert tell(SWITCHED, "medium") == tell(SWITCHED, "max") == ReasoningSettings({"enable_thinking": True})


def test_an_effort_that_a_model_lacks_becomes_the_nearest() -> None:
    levels = [tell(LEVELLED, effort).level for effort in EFFORTS]
    assert levels == [None, "low", "low", "low", "high", "high", "high"]
    assert tell(ThinkingOptions(levels=("none", "high")), "none").level == "none"
    assert tell(ThinkingOptions(levels=("none", "high")), "minimal").level == "high"


def test_what_is_said_of_the_switch_goes_before_the_effort() -> None:
    assert tell(SWITCHED, "low", enable_thinking=False).variables == {"enable_thinking": False}


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


@pytest.mark.parametrize(("cached", "loads"), [(0, True), (9, True), (10, True), (11, False)])
def test_cached_input_costs_at_most_what_the_other_costs(cached: int, loads: bool) -> None:
    price = {"input_tokens": 10, "cached_input_tokens": cached}
    if loads:
        assert stanza(price=price).price == price
        return
    with pytest.raises(ValidationError, match="cached_input_tokens"):
        stanza(price=price)
