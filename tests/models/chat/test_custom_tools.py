"""Calls of functions put back into calls of custom tools, whole and in pieces; several choices of one request."""

import json
from itertools import product
from types import SimpleNamespace
from typing import Any

from contract.completions import CompletionRequest
from models.chat.choices import LEAST_LOGPROB, ChoiceBuilder, CompletionPrompt, whole
from models.chat.tools import CustomCalls, restore_custom_call

TEXTS = ["", "plain", 'a "b"\n\tc \\\\', "é 😀 \u2028", "{}", "x" * 5000]


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def parts(arguments: str, size: int, index: int = 0, name: str = "code") -> list[dict[str, Any]]:
    head = {"index": index, "id": "c1", "type": "function", "function": {"name": name, "arguments": ""}}
    pieces = [arguments[i : i + size] for i in range(0, len(arguments), size)]
    return [head] + [{"index": index, "function": {"arguments": piece}} for piece in pieces]


def test_the_text_is_what_the_model_wrote_whole_and_in_pieces() -> None:
    for text, plain in product(TEXTS, (True, False)):
        arguments = json.dumps({"input": text}, ensure_ascii=not plain)
        custom = {"id": "c1", "type": "custom", "custom": {"name": "code", "input": text}}
        assert restore_custom_call(call("code", arguments), {"code"}) == custom
        for size in (1, 3, 7):
            calls = CustomCalls({"code"})
            sent = [more for part in parts(arguments, size) if (more := calls.delta(part))]
            assert not list(calls.rest())
            assert sent[0] == {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "code", "input": ""}}
            assert all(set(more) == {"index", "custom"} and more["custom"]["input"] for more in sent[1:])
            assert "".join(more["custom"]["input"] for more in sent) == text


def test_the_first_delta_of_a_call_has_the_text_that_clients_append_to() -> None:
    opening = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f"}}
    piece = {"index": 0, "function": {"arguments": "{}"}}
    calls = CustomCalls(())
    assert calls.delta(opening) == opening | {"function": {"name": "f", "arguments": ""}}
    assert calls.delta(piece) == piece
    begun = opening | {"function": {"name": "f", "arguments": "{"}}
    assert calls.delta(begun) == begun


def test_functions_stay_as_they_are() -> None:
    whole = call("f", '{"input": "a"}')
    assert restore_custom_call(whole, {"code"}) is whole
    calls = CustomCalls({"code"})
    sent = parts('{"input": "a"}', 2, name="f")
    assert [calls.delta(part) for part in sent] == sent
    assert not list(calls.rest())


def test_arguments_without_the_text_are_given_as_they_are() -> None:
    for arguments in ('{"code": "a"}', "print(1)", '{"input": 5}', "[1]"):
        assert restore_custom_call(call("code", arguments), {"code"})["custom"]["input"] == arguments
        calls = CustomCalls({"code"})
        sent = [more for part in parts(arguments, 3) if (more := calls.delta(part))] + list(calls.rest())
        assert "".join(more["custom"]["input"] for more in sent) == arguments


def test_calls_side_by_side_do_not_mix() -> None:
    calls = CustomCalls({"code"})
    one, two = parts('{"input": "first"}', 4, index=0), parts('{"input": "second"}', 4, index=1)
    sent = [more for pair in zip(one, two, strict=False) for part in pair if (more := calls.delta(part))]
    sent += [more for part in two[len(one) :] if (more := calls.delta(part))]
    for index, text in enumerate(("first", "second")):
        assert "".join(more["custom"]["input"] for more in sent if more["index"] == index) == text


def ledger(prompt: CompletionPrompt, **fields: Any) -> ChoiceBuilder:
    body = {"model": "small", "prompt": "ab", "logprobs": 1, **fields}
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "small"}
    return ChoiceBuilder(CompletionRequest.model_validate(body), head, [prompt])


def likely(token: int, text: str | None, logprob: float = -1.0) -> dict[int, Any]:
    return {token: SimpleNamespace(logprob=logprob, decoded_token=text)}


def output(index: int, *tokens: int, reason: str | None = None) -> Any:
    logprobs = [likely(token, chr(token)) for token in tokens]
    text = "".join(map(chr, tokens))
    return SimpleNamespace(index=index, token_ids=tokens, text=text, logprobs=logprobs, finish_reason=reason)


def result(*outputs: Any, scores: Any = None, cached: int | None = None) -> Any:
    return SimpleNamespace(outputs=outputs, prompt_logprobs=scores, num_cached_tokens=cached)


def test_scores_of_a_prompt_are_those_of_all_its_answers() -> None:
    book = ledger(CompletionPrompt([97, 98], 2, text="ab", first="a"), n=2, echo=True)
    scores = [None, likely(98, "b", -3.0)]
    pieces = book.choices(0, result(output(0, 99), scores=scores, cached=0))
    # The second answer begins in one piece with the end of the first, whose scores are used up.
    pieces += book.choices(0, result(output(0, 100, reason="stop"), output(1, 101, reason="stop"), scores=[], cached=2))
    one, other = whole(pieces)
    assert (one["text"], other["text"]) == ("abcd", "abe")
    assert one["logprobs"]
    assert other["logprobs"]
    assert one["logprobs"]["token_logprobs"] == [None, -3.0, -1.0, -1.0]
    assert other["logprobs"]["token_logprobs"] == [None, -3.0, -1.0]
    assert one["logprobs"]["text_offset"] == [0, 1, 2, 3]
    assert one["logprobs"]["tokens"] == ["a", "b", "c", "d"]
    assert (book.prompt_tokens, book.completion_tokens, book.cached_tokens) == (2, 3, 0)


def test_nothing_is_said_where_nothing_is_added() -> None:
    book = ledger(CompletionPrompt([97], 2))
    assert book.choices(0, result(output(0))) == []
    assert book.choices(0, result(output(0, 98, reason="length")))
    assert book.choices(0, result(output(0, 99, reason="length"))) == []
    # A score alone has no token of an answer.
    book = ledger(CompletionPrompt([97, 98], 0, text="ab", first="a"), echo=True, max_tokens=0)
    (choice,) = book.choices(0, result(output(0, 99, reason="stop"), scores=[None, likely(98, "b")]))
    assert (choice["text"], choice["finish_reason"], book.completion_tokens) == ("ab", "length", 0)


def test_a_logprob_that_json_lacks_and_tokens_without_text_can_be_said() -> None:
    book = ledger(CompletionPrompt([97], 2))
    broken = output(0, 98, reason="stop")
    broken.logprobs = [likely(98, None, float("-inf")) | likely(99, "", -2.0)]
    (choice,) = book.choices(0, result(broken))
    assert choice["logprobs"] == {
        "text_offset": [0], "token_logprobs": [LEAST_LOGPROB], "tokens": [""], "top_logprobs": [{"": -2.0}]
    }  # fmt: skip
