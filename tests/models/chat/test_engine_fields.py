"""What of a body reaches vLLM: the allow-list, without an engine."""

from typing import Any

from contract.catalog import ThinkingOptions
from contract.chat.request import ChatRequest
from contract.messages.request import MessagesRequest
from contract.messages.translation import chat_request
from models.chat.request import answer_reserve, engine_fields
from tests.contract.bodies import tool

ALLOWED = {
    "messages", "temperature", "top_p", "n", "seed", "presence_penalty", "frequency_penalty", "stop", "stream",
    "stream_options", "max_completion_tokens", "logprobs", "top_logprobs", "tools", "tool_choice",
    "parallel_tool_calls", "response_format", "cache_salt", "top_k", "min_p", "repetition_penalty",
}  # fmt: skip

HOSTILE = {
    "chat_template": "{% for x in range(9**9) %}{% endfor %}", "mm_processor_kwargs": {"size": 10**9}, "priority": -1,
    "media_io_kwargs": {"image": {}}, "cache_salt": "tenant", "guided_json": {}, "guided_regex": "(a+)+",
    "guided_grammar": "x", "logits_processors": ["os.system"], "prompt_logprobs": 20, "best_of": 100, "echo": True,
    "use_beam_search": True, "add_generation_prompt": False, "continue_final_message": True, "ignore_eos": True,
    "min_tokens": 10**6, "truncate_prompt_tokens": 1, "documents": [{"text": "x"}], "vllm_xargs": {"a": 1},
    "kv_transfer_params": {"prompt_token_ids": [1]}, "request_id": "mine", "return_token_ids": True,
    "bad_words": ["a"], "logit_bias": {"1": 100}, "thinking_token_budget": 1,
}  # fmt: skip


def everything() -> dict[str, Any]:
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}, "evil": 1}
    return {
        "model": "m",
        "messages": [
            {"role": "developer", "content": "s", "evil": 1},
            {"role": "user", "content": [{"type": "text", "text": "a", "evil": 1}], "name": "n"},
            {
                "role": "assistant",
                "reasoning": "r",
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}", "evil": 1}, "evil": 1}
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "x", "tool_calls": None},
        ],
        "temperature": 0.5, "top_p": 0.5, "max_tokens": 9, "stream": True, "n": 2, "seed": 1, "stop": "x",
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "logprobs": True, "top_logprobs": 2, "presence_penalty": 1, "frequency_penalty": 1,
        "top_k": 3, "min_p": 0.1, "repetition_penalty": 1.1, "reasoning_effort": "high",
        "tools": [{"type": "function", "function": function, "defer_loading": True}],
        "tool_choice": {"type": "function", "function": {"name": "f", "evil": 1}, "evil": 1},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "evil": 1}},
    }  # fmt: skip


TURN = {"messages": [{"role": "user", "content": "a"}]}
THOUGHTS = ("chat_template_kwargs", "reasoning_effort", "thinking_token_budget")


def keys_of(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()


def fields_of(body: dict[str, Any], *further: Any) -> dict[str, Any]:
    """What the engine gets of `body`, which asks something where it does not say what."""
    return engine_fields(ChatRequest.model_validate({"model": "m"} | TURN | body), *further)


def test_only_allowed_fields_pass() -> None:
    fields = fields_of(everything() | HOSTILE)
    assert set(fields) == ALLOWED - {"cache_salt"}
    assert not keys_of(fields) & (set(HOSTILE) | {"evil", "defer_loading", "continuous_usage_stats", "reasoning"})
    form = {"regex": "a+", "whitespace_pattern": "(a+)+", "disable_any_whitespace": True, "_backend": "outlines"}
    assert fields_of({"structured_outputs": form})["structured_outputs"] == {"regex": "a+"}


def test_the_servers_salt_passes_and_the_clients_does_not() -> None:
    assert fields_of(everything() | HOSTILE, "ours")["cache_salt"] == "ours"


def test_values_arrive_unchanged_and_a_bare_request_carries_defaults_of_the_api_only() -> None:
    fields = fields_of(everything())
    assert [message["role"] for message in fields["messages"]] == ["system", "user", "assistant", "tool"]
    assert fields["messages"][1] == {"role": "user", "content": "a", "name": "n"}
    assert fields["messages"][3] == {"role": "tool", "content": "x", "tool_call_id": "c"}
    assert fields["max_completion_tokens"] == 9
    assert fields["stop"] == ["x"]
    assert fields["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert fields["response_format"] == {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}
    assert fields_of({}) == {"messages": [{"role": "user", "content": "a"}], "temperature": 1.0, "stream": False}


def test_system_messages_at_the_top_are_one() -> None:
    first, more, ask, later = ({"role": role, "content": role} for role in ("system", "developer", "user", "system"))
    messages = [more | {"role": "system"}, ask, later]
    anthropic = MessagesRequest.model_validate(
        {"model": "m", "max_tokens": 5, "system": "system", "messages": messages}
    )
    top = {"role": "system", "content": "system\ndeveloper"}
    assert engine_fields(chat_request(anthropic))["messages"] == [top, ask, later]
    sent = fields_of({"messages": [first | {"name": "n"}, more, ask, later]})["messages"]
    assert sent == [top | {"name": "n"}, ask, later]


def test_a_refusal_that_is_said_again_is_text_of_the_assistant() -> None:
    part = {"type": "refusal", "refusal": "I cannot."}
    for message in ({"content": [part]}, {"content": None, "refusal": "I cannot."}):
        turns = [{"role": "user", "content": "a"}, {"role": "assistant"} | message, {"role": "user", "content": "b"}]
        sent = fields_of({"messages": turns})["messages"]
        assert sent[1] == {"role": "assistant", "content": "I cannot."}
    pictured = [part, {"type": "image_url", "image_url": "data:image/png;base64,iVBORw0KGgo="}]
    turns = [{"role": "user", "content": pictured}]
    sent = fields_of({"messages": turns})["messages"]
    assert sent[0]["content"][0] == {"type": "text", "text": "I cannot."}


def test_a_forced_call_follows_its_schema_unless_told_otherwise() -> None:
    def strict(choice: Any, **function: Any) -> Any:
        tools = [tool(**({"parameters": {"type": "object"}} | function))]
        return fields_of({"tools": tools, "tool_choice": choice})["tools"][0]["function"].get("strict")

    assert strict("required") is True
    assert strict({"type": "function", "function": {"name": "f"}}) is True
    assert strict("required", strict=False) is False
    assert strict("required", strict=False, parameters={}) is True  # there is nothing else to follow
    assert strict("auto") is None


def test_several_greedy_answers_are_the_most_probable_token_each_time() -> None:
    def sampling(**fields: Any) -> tuple[Any, Any]:
        made = fields_of(fields)
        return made["temperature"], made.get("top_k")

    assert sampling(temperature=0, n=1) == (0, None)
    assert sampling(temperature=0, n=2) == (1.0, 1)
    assert sampling(temperature=0.1, n=2) == (0.1, None)
    assert sampling(temperature=0, n=2, top_k=5) == (1.0, 1)
    assert sampling(temperature=0, n=1, top_k=5) == (0, 5)
    assert sampling(top_p=0) == sampling(top_p=0, temperature=0, top_k=5) == (1.0, 1)
    assert [sampling(top_k=value)[1] for value in (-1, 0, 1)] == [0, 0, 1]  # both numbers for all tokens are one
    assert sampling(top_k=2**64) == (1.0, 2**31 - 1)
    assert "top_p" not in fields_of({"top_p": 0})


THINKS = ThinkingOptions(switch="enable_thinking", budgets={"low": 100}, variables={"preserve_thinking": "boolean"})


def test_thinking_reaches_the_engine_in_the_terms_of_the_model() -> None:
    def fields(thinking: ThinkingOptions | None, **said: Any) -> dict[str, Any]:
        made = fields_of(said, None, thinking)
        return {name: made[name] for name in THOUGHTS if name in made}

    assert fields(THINKS) == fields(None, reasoning_effort="high") == {}
    assert fields(THINKS, reasoning_effort="none") == {"chat_template_kwargs": {"enable_thinking": False}}
    assert fields(THINKS, reasoning_effort="low") == {
        "chat_template_kwargs": {"enable_thinking": True},
        "thinking_token_budget": 100,
    }
    assert fields(THINKS, chat_template_kwargs={"preserve_thinking": True}) == {
        "chat_template_kwargs": {"preserve_thinking": True}
    }
    assert fields(ThinkingOptions(levels=("low", "high")), reasoning_effort="max") == {"reasoning_effort": "high"}


def test_reserve_is_what_was_asked_for_but_at_most_a_quarter() -> None:
    assert answer_reserve(None, 1024) == 256
    assert answer_reserve(255, 1024) == 255
    assert answer_reserve(256, 1024) == 256
    assert answer_reserve(257, 1024) == 256
    assert answer_reserve(5, 2) == 1


def test_custom_and_allowed_tools_become_functions() -> None:
    custom = {"type": "custom", "custom": {"name": "code", "description": "Runs Python", "format": {"type": "text"}}}
    tools = [custom, {"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}]
    call = {"id": "c", "type": "custom", "custom": {"name": "code", "input": 'a "b"'}}
    body = {"messages": [{"role": "assistant", "tool_calls": [call]}], "tools": tools}

    fields = fields_of(body | {"tool_choice": custom})
    assert [tool["function"]["name"] for tool in fields["tools"]] == ["code", "f", "g"]
    assert {tool["type"] for tool in fields["tools"]} == {"function"}
    function = fields["tools"][0]["function"]
    assert (function["description"], function["strict"]) == ("Runs Python", True)
    assert list(function["parameters"]["properties"]) == ["input"]
    request = ChatRequest.model_validate({"model": "m"} | body)
    assert list(request.compiled_schemas()) == ["tools[0].function.parameters"]
    assert fields["tool_choice"] == {"type": "function", "function": {"name": "code"}}
    assert fields["custom_tools"] == {"code"}
    assert fields["messages"][0]["tool_calls"] == [
        {"id": "c", "type": "function", "function": {"name": "code", "arguments": '{"input": "a \\"b\\""}'}}
    ]

    for mode in ("auto", "required"):
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [custom, tools[2]]}}
        fields = fields_of(body | {"tool_choice": allowed})
        assert [tool["function"]["name"] for tool in fields["tools"]] == ["code", "g"]
        assert fields["tool_choice"] == mode
