"""More probabilities than a reply may hold are refused on each wire, before any engine is asked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import Api

CHAT = {"model": "obedient", "messages": [{"role": "user", "content": "say hello"}], "logprobs": True}
RESPONSE = {"model": "obedient", "input": "say hello", "include": ["message.output_text.logprobs"]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "most", "param", "budget"),
    [
        ("/v1/chat/completions", CHAT, 65_536, "logprobs", "max_tokens"),
        ("/v1/chat/completions", CHAT | {"n": 8}, 8_192, "logprobs", "max_tokens"),
        ("/v1/chat/completions", CHAT | {"top_logprobs": 20}, 18_724, "top_logprobs", "max_completion_tokens"),
        ("/v1/responses", RESPONSE, 65_536, "include", "max_output_tokens"),
        ("/v1/responses", RESPONSE | {"top_logprobs": 20}, 18_724, "top_logprobs", "max_output_tokens"),
    ],
)
async def test_logprobs_are_bounded(
    api: Api, path: str, body: dict[str, Any], most: int, param: str, budget: str, stream: bool
) -> None:
    models: Any = api.service.catalog.chat
    models["obedient"] = models["obedient"].model_copy(update={"context_window": 262_144})
    engine = api.engine()
    for tokens, status in ((most - 1, 200), (most, 200), (None, 200), (most + 1, 400)):
        engine.callers.clear()
        reply = await api.send("POST", path, json=body | {budget: tokens, "stream": stream})
        assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert f"`{param}` of up to" in error["message"]
    assert engine.callers == []


async def test_a_window_that_is_small_enough_needs_no_bound(api: Api) -> None:
    for fields in ({"max_tokens": 10**6}, {"n": 8}, {"top_logprobs": 20}):
        reply = await api.send("POST", "/v1/chat/completions", json=CHAT | fields)
        assert reply.status_code == 200
