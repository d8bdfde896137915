"""Bodies of POST /completions and what they may cost, their logprobs, and how long those of POST /tokenize may be."""

import json
import re
import tracemalloc
from typing import Any

from contract.body import validated
from contract.catalog.base import PART_TOKENS, TEMPLATE_TOKENS
from contract.chat.engine import ChatBatch, ChatJob, check_logprobs
from contract.completions import MAX_COMPLETIONS, CompletionJob, CompletionRequest
from contract.errors import TOO_MUCH_AT_ONCE
from contract.limits import DETOKENIZE_IDS, LOGPROB_TOKENS, TOKENIZE_BYTES_PER_TOKEN, most_with_logprobs
from contract.responses.reply import ResponseEvents, ResponseHead
from contract.tokens import DetokenizeRequest, TokenizeBody, check_job
from contract.wires import event
from tests.catalogs import chat
from tests.contract.bodies import Row, chat_request, check_refused, refusal, responses_request

MODEL = chat("small")
"""Its window has 1,000 tokens."""


def request(**fields: Any) -> CompletionRequest:
    return validated(CompletionRequest, {"model": "small", "prompt": "Once", **fields})


def test_a_prompt_is_a_text_or_ids_or_several() -> None:
    prompts: list[tuple[Any, Any]] = [("Once", ("Once",)), ([1, 2], ((1, 2),)), ([[1], [2, 3]], ((1,), (2, 3)))]
    prompts += [(["Once", "Twice"], ("Once", "Twice")), (["Once", [1]], ("Once", (1,)))]
    assert [request(prompt=prompt).prompt for prompt, _ in prompts] == [read for _, read in prompts]


REFUSED: list[Row] = [
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
    ({"n": 0}, "n", "send at least 1"),
    ({"n": 9}, "n", "send at most 8"),
    ({"best_of": 2}, None, "must equal `n`, which is 1"),
    ({"n": 2, "best_of": 1}, None, "must equal `n`, which is 2"),
    ({"max_tokens": -1}, "max_tokens", "send at least 0"),
    ({"max_tokens": 0}, None, "`echo: true`"),
    ({"logprobs": 6}, "logprobs", "send at most 5"),
    ({"logprobs": -1}, "logprobs", "send at least 0"),
    ({"logprobs": True}, "logprobs", "integer"),
    ({"echo": True, "suffix": "."}, None, "cannot be used together"),
    ({"temperature": 2.1}, "temperature", "send at most 2"),
    ({"top_p": -0.1}, "top_p", "send at least 0"),
    ({"top_k": -2}, "top_k", "send at least -1"),
    ({"min_p": 1.1}, "min_p", "send at most 1"),
    ({"repetition_penalty": 0}, "repetition_penalty", "send more than 0"),
    ({"frequency_penalty": 2.1}, "frequency_penalty", "send at most 2"),
    ({"stop": ["a"] * 17}, "stop", "at most 16"),
]
TAKEN: list[dict[str, Any]] = [
    {"prompt": ["a"] * MAX_COMPLETIONS},
    {"prompt": ["a"] * 64, "n": 2},
    {"n": 8, "best_of": 8},
    {"max_tokens": 0, "echo": True},
    {"best_of": 1, "logprobs": 0},
    {"logprobs": 5},
    {"user": "me", "logit_bias": {"1": 5}, "something": "else"},
    {"suffix": None, "echo": None, "stop": None, "stream": None, "max_tokens": None},
]


def test_a_bad_field_is_named_bounds_are_taken_and_what_is_not_ours_is_ignored() -> None:
    check_refused(request, REFUSED)
    for fields in TAKEN:
        assert request(**fields), fields


def test_an_answer_is_short_and_says_nothing_of_usage_unless_the_request_says_otherwise() -> None:
    included = (request(stream_options=options).include_usage for options in ({"include_usage": True}, {}, None))
    assert [*included] == [True, False, False]
    assert (request().budget, request(max_tokens=0, echo=True).budget, request(max_tokens=3).budget) == (16, 0, 3)


def test_what_a_request_may_cost_counts_each_prompt_and_each_answer() -> None:
    each = PART_TOKENS + TEMPLATE_TOKENS
    job = CompletionJob(request(prompt=["ab", [1, 2, 3], "x" * 5000], n=2, max_tokens=5))
    assert job.most_input_tokens(MODEL) == (2 + each) + (3 + each) + 1000
    assert job.most_output_tokens(MODEL) == 3 * 2 * 5
    assert CompletionJob(request(max_tokens=10**9)).most_output_tokens(MODEL) == 1000
    assert CompletionJob(request(max_tokens=0, echo=True)).most_output_tokens(MODEL) == 0


def test_far_more_text_than_the_window_holds_is_not_made_tokens() -> None:
    for surplus in (-1, 0, 1):
        text = "é" * 500 + "x" * (TOKENIZE_BYTES_PER_TOKEN * 1000 - 1000 + surplus)
        for field, value in {"prompt": text, "messages": [{"role": "user", "content": text}]}.items():
            job = validated(TokenizeBody, {"model": "small", field: value}).root.job()
            if surplus <= 0:
                check_job(job, MODEL)
            else:
                error = refusal(check_job, job, MODEL)
                assert (error.param, "8001 bytes of text" in error.message) == (field, True)


def test_a_bad_field_of_tokens_is_named() -> None:
    small = {"model": "small"}
    wrong: list[tuple[dict[str, Any], str]] = [
        (small, "prompt"),
        (small | {"prompt": 1}, "prompt"),
        (small | {"prompt": ["a"]}, "prompt"),
        (small | {"messages": []}, "messages"),
        (small | {"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"prompt": "a"}, "model"),
        (small | {"prompt": "a", "add_special_tokens": "yes"}, "add_special_tokens"),
    ]
    assert [refusal(validated, TokenizeBody, body).param for body, _ in wrong] == [param for _, param in wrong]


def test_ids_to_write_as_text_are_bounded() -> None:
    assert DetokenizeRequest(model="small", tokens=[1] * DETOKENIZE_IDS)
    for tokens in ([1] * (DETOKENIZE_IDS + 1), [-1], ["a"], None):
        error = refusal(validated, DetokenizeRequest, {"model": "small", "tokens": tokens})
        assert str(error.param).startswith("tokens")


def test_more_others_are_for_fewer_tokens() -> None:
    for others, most in ((0, LOGPROB_TOKENS), (4, LOGPROB_TOKENS), (5, LOGPROB_TOKENS), (6, 56_173), (20, 18_724)):
        assert most_with_logprobs(others) == most
        for tokens in (most - 1, most):
            check_logprobs(tokens, others, "logprobs")
        error = refusal(check_logprobs, most + 1, others, "top_logprobs")
        assert error.param == "top_logprobs"
        assert re.search(f"up to {most + 1} tokens .* with {others} others each.* at most {most}", error.message)


def test_an_answer_without_a_limit_is_cut_to_what_may_have_logprobs() -> None:
    budgets: list[tuple[dict[str, Any], int | None]] = [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": True}, LOGPROB_TOKENS),
        ({"logprobs": True, "n": 8}, LOGPROB_TOKENS // 8),
        ({"logprobs": True, "top_logprobs": 20}, 18_724),
        ({"logprobs": True, "top_logprobs": 20, "n": 8}, 2_340),
        ({"logprobs": True, "top_logprobs": 20, "max_tokens": 7}, 7),
        ({"logprobs": True, "top_logprobs": 20, "max_completion_tokens": 10**6}, 10**6),
    ]
    wide = chat("m").model_copy(update={"context_window": 10**6})
    for fields, budget in budgets:
        request = chat_request(**fields)
        assert request.budget == budget, fields
        if budget != 10**6 and fields.get("logprobs"):
            check_logprobs(ChatJob(request).most_output_tokens(wide), fields.get("top_logprobs", 0), "logprobs")


TOKEN = {
    "token": "word ",
    "bytes": list(b"word "),
    "logprob": -0.123456789,
    "top_logprobs": [{"token": f"word{i} ", "bytes": list(b"word00 "), "logprob": -i - 0.12345678} for i in range(20)],
}


def batch(number: int) -> ChatBatch:
    choice = {"index": 0, "delta": {"content": TOKEN["token"]}, "logprobs": {"content": [TOKEN]}, "finish_reason": None}
    return ChatBatch(event({"choices": [choice]}), 7, number)


def responding(*hold: Any, **fields: Any) -> ResponseEvents:
    return ResponseEvents(ResponseHead(responses_request(**fields), "req_abc", 1, "m"), *hold)


def test_a_stream_keeps_no_more_of_its_logprobs_than_it_has_told() -> None:
    held: list[int] = []
    events = responding(held.append, top_logprobs=20)
    events.of(batch(0))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(500):
        events.of(batch(number))
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # As objects they were six times as much.
    assert kept < 1.3 * sum(held[1:])
    told = [json.loads(one.split(b"\ndata: ")[1]) for one in b"".join(events.end()).split(b"\n\n") if one]
    repeated = [told[0]["logprobs"], told[1]["part"]["logprobs"], told[2]["item"]["content"][0]["logprobs"]]
    repeated.append(told[3]["response"]["output"][0]["content"][0]["logprobs"])
    assert repeated == [[TOKEN] * 501] * 4


def test_what_a_client_says_is_never_taken_for_logprobs() -> None:
    body = {"metadata": {"logprobs": "0"}, "instructions": '"logprobs":"1"'}
    events = responding(top_logprobs=1, **body)
    framed = events.of(batch(0)) + b"".join(events.end())
    last = json.loads(framed.split(b"\n\n")[-2].split(b"\ndata: ")[1])["response"]
    assert (last["metadata"], last["instructions"]) == (body["metadata"], body["instructions"])


def test_a_stream_whose_logprobs_have_no_room_fails_with_what_was_made() -> None:
    def hold(count: int) -> None:
        room.append(count)
        if len(room) > 3:
            raise TOO_MUCH_AT_ONCE("full", retry_after_s=1)

    room: list[int] = []
    events = responding(hold, top_logprobs=20)
    for number in range(3):
        events.of(batch(number))
    error = refusal(events.of, batch(3), fault=TOO_MUCH_AT_ONCE)
    last = json.loads(events.failed(error).split(b"\ndata: ")[-1])
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "rate_limit_exceeded")
    assert last["response"]["output"][0]["content"][0]["text"] == "word " * 3
