"""Numeric bounds of bodies against those of the schemas that they follow: they may be wider, never narrower."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from contract.chat.request import ChatRequest
from contract.completions import CompletionRequest
from contract.embeddings import EmbeddingsRequest
from contract.messages.request import MessagesRequest
from contract.rerank import RerankRequest
from contract.responses.request import ResponsesRequest

INFINITY = math.inf
MODELS = (ChatRequest, CompletionRequest, ResponsesRequest, MessagesRequest, EmbeddingsRequest, RerankRequest)
LOWEST = {"minimum": 0, "exclusiveMinimum": 1, "minLength": 0, "minItems": 0}
HIGHEST = {"maximum": 0, "exclusiveMaximum": -1, "maxLength": 0, "maxItems": 0, "maxProperties": 0}
"""Keywords of a bound, and what lies between their value and the nearest whole number that is allowed."""

DRAWING = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}
VLLM = {"top_k": (-1, INFINITY), "min_p": (0, 1)}
FOLLOWED: dict[str, dict[str, tuple[float, float]]] = {
    "ChatRequest": DRAWING
    | VLLM
    | {
        "max_tokens": (1, INFINITY),
        "max_completion_tokens": (1, INFINITY),
        "n": (1, 128),
        "top_logprobs": (0, 20),
        "seed": (-(2**63), 2**63 - 1),
        "stop": (0, 4),
        "tools": (0, 128),
        "messages": (1, INFINITY),
    },
    "Function": {"name": (1, 64)},
    "CompletionRequest": DRAWING
    | VLLM
    | {"max_tokens": (0, INFINITY), "n": (1, 128), "logprobs": (0, 5), "seed": (-(2**63), 2**63 - 1), "stop": (0, 4)},
    "ResponsesRequest": {
        "temperature": (0, 2),
        "top_p": (0, 1),
        "max_output_tokens": (16, INFINITY),
        "top_logprobs": (0, 20),
        "tools": (0, 128),
        "metadata": (0, 16),
        "metadata keys": (0, 64),
        "metadata values": (0, 512),
        "user": (0, 512),
        "safety_identifier": (0, 128),
        "prompt_cache_key": (0, 512),
    },
    "ClientTool": {"name": (1, 128)},
    "MessagesRequest": {
        "max_tokens": (0, INFINITY),
        "temperature": (0, 1),
        "top_p": (0, 1),
        "top_k": (0, INFINITY),
        "messages": (1, INFINITY),
    },
    "MessageTool": {"name": (1, 128)},
    "Thinking": {"budget_tokens": (1024, INFINITY)},
    "EmbeddingsRequest": {"dimensions": (1, INFINITY)},
    "RerankRequest": {"top_n": (1, INFINITY)},
}
"""The lowest and highest value, or length, in the schemas of OpenAI, Anthropic, Cohere and, for its fields, vLLM."""
NARROWER = {
    "ChatRequest.n": "each answer is a sequence in an engine that organisations share",
    "CompletionRequest.n": "the same",
    "ChatRequest.messages": "a conversation of more is longer than any window",
    "MessagesRequest.messages": "the same",
}
OF_VLLM = {"ChatRequest.repetition_penalty", "CompletionRequest.repetition_penalty"}
"""Numbers that no followed schema has, and that vLLM does not bound; extremes would be no numbers in its arithmetic."""


def bounds(model: type[BaseModel]) -> Iterator[tuple[str, str, float, float]]:
    """Object, field, lowest and highest of each bounded field of `model` and of the objects in it."""
    schema = model.model_json_schema()
    for name, part in [(model.__name__, schema), *schema.get("$defs", {}).items()]:
        for field, value in part.get("properties", {}).items():
            for kind, form in forms(field, value):
                lows = [form[key] + step for key, step in LOWEST.items() if key in form]
                highs = [form[key] + step for key, step in HIGHEST.items() if key in form]
                if "{1,128}$" in form.get("pattern", ""):
                    lows, highs = [1], [128]
                if lows or highs:
                    yield name, kind, max(lows, default=-INFINITY), min(highs, default=INFINITY)


def forms(field: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield field, schema
    for form in schema.get("anyOf", ()):
        yield from forms(field, form)
    if "propertyNames" in schema:
        yield f"{field} keys", schema["propertyNames"]
        yield f"{field} values", schema["additionalProperties"]


OURS = {(name, field): (low, high) for model in MODELS for name, field, low, high in bounds(model)}


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, fields in FOLLOWED.items() for field in fields])
def test_no_bound_is_narrower_than_in_the_schema_that_is_followed(name: str, field: str) -> None:
    low, high = FOLLOWED[name][field]
    our_low, our_high = OURS.get((name, field), (-INFINITY, INFINITY))
    assert (our_low <= low and high <= our_high) is (f"{name}.{field}" not in NARROWER), (our_low, our_high)


def test_every_number_of_a_body_is_compared() -> None:
    numbers = {
        f"{model.__name__}.{field}"
        for model in MODELS
        for field, value in model.model_json_schema()["properties"].items()
        if any(
            {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} & form.keys()
            for _, form in forms(field, value)
        )
    }
    assert numbers - OF_VLLM == numbers & {f"{name}.{field}" for name, fields in FOLLOWED.items() for field in fields}


@pytest.mark.parametrize("count", [9, 14, 15, 16])
def test_editors_send_more_stop_strings_than_openai_takes(count: int) -> None:
    stop = [f"\n{i}" for i in range(count)]
    for model, name, rest in (
        (ChatRequest, "stop", {"messages": [{"role": "user", "content": "x"}]}),
        (CompletionRequest, "stop", {"prompt": "x"}),
        (MessagesRequest, "stop_sequences", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}),
    ):
        assert getattr(model.model_validate({"model": "m", name: stop} | rest), name) == stop
