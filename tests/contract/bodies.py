"""Bodies as clients send them, and what is said of those that are refused."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from contract.body import parse, validated
from contract.chat.request import ChatRequest
from contract.errors import INVALID_REQUEST, ApiError, Fault
from contract.responses.request import ResponsesRequest

M = TypeVar("M", bound=BaseModel)

TURN = {"role": "user", "content": "hi"}


def read(kind: type[M], fields: dict[str, Any]) -> M:
    return parse(kind, json.dumps(fields).encode())


def chat_request(**fields: Any) -> ChatRequest:
    return validated(ChatRequest, {"model": "m", "messages": [TURN]} | fields)


def tool(name: str = "f", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name} | function}


def responses_request(**fields: Any) -> ResponsesRequest:
    return read(ResponsesRequest, {"model": "m", "input": "Hello"} | fields)


def turns_of(request: ChatRequest) -> list[dict[str, Any]]:
    return [message.model_dump(exclude_none=True) for message in request.messages]


def refusal(ask: Callable[..., object], /, *given: Any, fault: Fault = INVALID_REQUEST, **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        ask(*given, **fields)
    assert caught.value.fault is fault, (f"{given} {fields}"[:200], caught.value)
    return caught.value


def refused(ask: Callable[..., object], /, **fields: Any) -> tuple[str | None, str]:
    """The field at fault and the sentence of the 400."""
    error = refusal(ask, **fields)
    return error.param, error.message


Row = tuple[dict[str, Any], str | None, str]
"""Fields of a body, the one at fault, and words of the sentence that refuses it."""


def check_refused(ask: Callable[..., object], rows: Mapping[Any, Row] | Iterable[Row], /) -> None:
    """Fails with all rows that are taken, or refused by another field or in other words."""
    wrong = {}
    for name, (fields, param, words) in rows.items() if isinstance(rows, Mapping) else enumerate(rows):
        try:
            wrong[name] = f"{str(fields)[:200]} is taken: {str(ask(**fields))[:200]}"
        except ApiError as error:
            if (error.fault, error.param) != (INVALID_REQUEST, param) or words not in error.message:
                wrong[name] = f"{str(fields)[:200]} is {error.fault.name}: {error.param}, {error.message}"
    assert not wrong, wrong  # no test module, so pytest shows no values
