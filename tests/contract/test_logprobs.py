"""How many probabilities one request may have, and what a stream keeps of them."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from contract.chat.engine import ChatBatch, ChatJob, check_logprobs
from contract.errors import TOO_MUCH_AT_ONCE, ApiError
from contract.limits import LOGPROB_TOKENS, most_with_logprobs
from contract.responses.events import ResponseEvents
from contract.responses.reply import ResponseHead
from contract.wires import event
from tests.catalogs import chat
from tests.contract.bodies import chat_request, responses_request

MODEL = chat("m").model_copy(update={"context_window": 10**6})


@pytest.mark.parametrize(
    ("others", "most"), [(0, LOGPROB_TOKENS), (4, LOGPROB_TOKENS), (5, LOGPROB_TOKENS), (6, 56_173), (20, 18_724)]
)
def test_more_others_are_for_fewer_tokens(others: int, most: int) -> None:
    assert most_with_logprobs(others) == most
    check_logprobs(most - 1, others, "logprobs")
    check_logprobs(most, others, "logprobs")
    with pytest.raises(
        ApiError, match=f"up to {most + 1} tokens .* with {others} others each.* at most {most}"
    ) as error:
        check_logprobs(most + 1, others, "top_logprobs")
    assert error.value.param == "top_logprobs"


@pytest.mark.parametrize(
    ("fields", "budget"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": True}, LOGPROB_TOKENS),
        ({"logprobs": True, "n": 8}, LOGPROB_TOKENS // 8),
        ({"logprobs": True, "top_logprobs": 20}, 18_724),
        ({"logprobs": True, "top_logprobs": 20, "n": 8}, 2_340),
        ({"logprobs": True, "top_logprobs": 20, "max_tokens": 7}, 7),
        ({"logprobs": True, "top_logprobs": 20, "max_completion_tokens": 10**6}, 10**6),
    ],
)
def test_an_answer_without_a_limit_is_cut_to_what_may_have_logprobs(fields: dict[str, Any], budget: int | None) -> None:
    request = chat_request(**fields)
    assert request.budget == budget
    if budget != 10**6 and fields.get("logprobs"):
        check_logprobs(ChatJob(request).most_output_tokens(MODEL), fields.get("top_logprobs", 0), "logprobs")


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
    with pytest.raises(ApiError) as error:
        events.of(batch(3))
    last = json.loads(events.failed(error.value).split(b"\ndata: ")[-1])
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "rate_limit_exceeded")
    assert last["response"]["output"][0]["content"][0]["text"] == "word " * 3
