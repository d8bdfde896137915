"""Bodies of POST /completions and what they may cost; of POST /tokenize how long they may be."""

from __future__ import annotations

from typing import Any

import pytest

from contract.body import validated
from contract.catalog.base import PART_TOKENS, TEMPLATE_TOKENS
from contract.completions import MAX_COMPLETIONS, CompletionJob, CompletionRequest
from contract.limits import DETOKENIZE_IDS, TOKENIZE_BYTES_PER_TOKEN
from contract.tokens import DetokenizeRequest, TokenizeBody, check_length
from tests.catalogs import chat
from tests.contract.bodies import refusal, refused

MODEL = chat("small")
"""Its window has 1,000 tokens."""


def request(**fields: Any) -> CompletionRequest:
    return validated(CompletionRequest, {"model": "small", "prompt": "Once", **fields})


@pytest.mark.parametrize(
    ("prompt", "read"),
    [
        ("Once", ("Once",)),
        (["Once", "Twice"], ("Once", "Twice")),
        ([1, 2], ((1, 2),)),
        ([[1], [2, 3]], ((1,), (2, 3))),
        (["Once", [1]], ("Once", (1,))),
    ],
)
def test_a_prompt_is_a_text_or_ids_or_several(prompt: Any, read: Any) -> None:
    assert request(prompt=prompt).prompt == read


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"prompt": None}, "prompt", "neither a string nor"),
        ({"prompt": ""}, "prompt", "it is empty"),
        ({"prompt": []}, "prompt", "0 prompts"),
        ({"prompt": ["Once", ""]}, "prompt", "item 1 is empty"),
        ({"prompt": [[]]}, "prompt", "item 0 is neither"),
        ({"prompt": [1, "a"]}, "prompt", "item 0 is neither"),
        ({"prompt": [True]}, "prompt", "item 0 is neither"),
        ({"prompt": [1.0]}, "prompt", "item 0 is neither"),
        ({"prompt": {"a": 1}}, "prompt", "neither a string nor"),
        ({"prompt": [3, -1]}, "prompt", "the token id -1"),
        ({"prompt": ["a"] * (MAX_COMPLETIONS + 1)}, "prompt", f"1 to {MAX_COMPLETIONS}"),
        ({"prompt": ["a"] * 65, "n": 2}, None, "128 answers together"),
        ({"n": 0}, "n", "greater than or equal to 1"),
        ({"n": 9}, "n", "less than or equal to 8"),
        ({"best_of": 2}, None, "must equal `n`, which is 1"),
        ({"n": 2, "best_of": 1}, None, "must equal `n`, which is 2"),
        ({"max_tokens": -1}, "max_tokens", "greater than or equal to 0"),
        ({"max_tokens": 0}, None, "`echo: true`"),
        ({"logprobs": 6}, "logprobs", "less than or equal to 5"),
        ({"logprobs": -1}, "logprobs", "greater than or equal to 0"),
        ({"logprobs": True}, "logprobs", "integer"),
        ({"echo": True, "suffix": "."}, None, "cannot be used together"),
        ({"temperature": 2.1}, "temperature", "less than or equal to 2"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"top_k": 1001}, "top_k", "less than or equal to 1000"),
        ({"min_p": 1.1}, "min_p", "less than or equal to 1"),
        ({"repetition_penalty": 0}, "repetition_penalty", "greater than 0"),
        ({"frequency_penalty": 2.1}, "frequency_penalty", "less than or equal to 2"),
        ({"stop": ["a"] * 5}, "stop", "at most 4"),
    ],
)
def test_a_bad_field_is_named(fields: dict[str, Any], param: str | None, said: str) -> None:
    place, sentence = refused(request, **fields)
    assert (place, said in sentence) == (param, True), sentence


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": ["a"] * MAX_COMPLETIONS},
        {"prompt": ["a"] * 64, "n": 2},
        {"n": 8, "best_of": 8},
        {"best_of": 1},
        {"max_tokens": 0, "echo": True},
        {"logprobs": 0},
        {"logprobs": 5},
        {"user": "me", "logit_bias": {"1": 5}, "something": "else"},
        {"suffix": None, "echo": None, "stop": None, "stream": None, "max_tokens": None},
    ],
)
def test_bounds_are_taken_and_what_is_not_ours_is_ignored(fields: dict[str, Any]) -> None:
    assert request(**fields)


def test_an_answer_is_short_unless_the_request_says_otherwise() -> None:
    assert (request().budget, request(max_tokens=0, echo=True).budget, request(max_tokens=3).budget) == (16, 0, 3)


def test_what_a_request_may_cost_counts_each_prompt_and_each_answer() -> None:
    each = PART_TOKENS + TEMPLATE_TOKENS
    job = CompletionJob(request(prompt=["ab", [1, 2, 3], "x" * 5000], n=2, max_tokens=5))
    assert job.most_input_tokens(MODEL) == (2 + each) + (3 + each) + 1000
    assert job.most_output_tokens(MODEL) == 3 * 2 * 5
    assert CompletionJob(request(max_tokens=10**9)).most_output_tokens(MODEL) == 1000
    assert CompletionJob(request(max_tokens=0, echo=True)).most_output_tokens(MODEL) == 0


@pytest.mark.parametrize("surplus", [-1, 0, 1])
@pytest.mark.parametrize("field", ["prompt", "messages"])
def test_far_more_text_than_the_window_holds_is_not_made_tokens(field: str, surplus: int) -> None:
    text = "é" * 500 + "x" * (TOKENIZE_BYTES_PER_TOKEN * 1000 - 1000 + surplus)
    messages = [{"role": "user", "content": text}]
    job = validated(TokenizeBody, {"model": "small", field: messages if field == "messages" else text}).root.job()
    if surplus <= 0:
        return check_length(job, MODEL)
    error = refusal(check_length, job, MODEL)
    assert (error.param, "8001 bytes of text" in error.message) == (field, True)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "small"}, "prompt"),
        ({"model": "small", "prompt": 1}, "prompt"),
        ({"model": "small", "prompt": ["a"]}, "prompt"),
        ({"model": "small", "messages": []}, "messages"),
        ({"model": "small", "messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"prompt": "a"}, "model"),
        ({"model": "small", "prompt": "a", "add_special_tokens": "yes"}, "add_special_tokens"),
    ],
)
def test_a_bad_field_of_tokens_is_named(body: dict[str, Any], param: str) -> None:
    assert refusal(validated, TokenizeBody, body).param == param


def test_ids_to_write_as_text_are_bounded() -> None:
    assert DetokenizeRequest(model="small", tokens=[1] * DETOKENIZE_IDS)
    for tokens in ([1] * (DETOKENIZE_IDS + 1), [-1], ["a"], None):
        error = refusal(validated, DetokenizeRequest, {"model": "small", "tokens": tokens})
        assert str(error.param).startswith("tokens")
