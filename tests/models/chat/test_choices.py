"""Outputs of an engine as choices: what comes in odd pieces. Real ones are in test_completions.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from contract.completions import CompletionRequest
from models.chat.choices import LEAST_LOGPROB, ChoiceBuilder, CompletionPrompt, whole

HEAD = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "small"}


def ledger(prompt: CompletionPrompt, **fields: Any) -> ChoiceBuilder:
    body = {"model": "small", "prompt": "ab", "logprobs": 1, **fields}
    return ChoiceBuilder(CompletionRequest.model_validate(body), HEAD, [prompt])


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


def test_a_score_alone_has_no_token_of_an_answer() -> None:
    book = ledger(CompletionPrompt([97, 98], 0, text="ab", first="a"), echo=True, max_tokens=0)
    (choice,) = book.choices(0, result(output(0, 99, reason="stop"), scores=[None, likely(98, "b")]))
    assert (choice["text"], choice["finish_reason"], book.completion_tokens) == ("ab", "length", 0)


def test_nothing_is_said_where_nothing_is_added() -> None:
    book = ledger(CompletionPrompt([97], 2))
    assert book.choices(0, result(output(0))) == []
    assert book.choices(0, result(output(0, 98, reason="length")))
    assert book.choices(0, result(output(0, 99, reason="length"))) == []


def test_a_logprob_that_json_lacks_and_tokens_without_text_can_be_said() -> None:
    book = ledger(CompletionPrompt([97], 2))
    broken = output(0, 98, reason="stop")
    broken.logprobs = [likely(98, None, float("-inf")) | likely(99, "", -2.0)]
    (choice,) = book.choices(0, result(broken))
    assert choice["logprobs"] == {
        "text_offset": [0], "token_logprobs": [LEAST_LOGPROB], "tokens": [""], "top_logprobs": [{"": -2.0}]
    }  # fmt: skip
