"""Calls of functions put back into calls of custom tools, whole and in pieces."""

import json
from typing import Any

import pytest

from models.chat.tools import CustomCalls, restore_custom_call

TEXTS = ["", "plain", 'a "b"\n\tc \\\\', "é 😀 \u2028", "{}", "x" * 5000]


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def parts(arguments: str, size: int, index: int = 0, name: str = "code") -> list[dict[str, Any]]:
    """A call of a function as an engine's parser sends it."""
    head = {"index": index, "id": "c1", "type": "function", "function": {"name": name, "arguments": ""}}
    pieces = [arguments[i : i + size] for i in range(0, len(arguments), size)]
    return [head] + [{"index": index, "function": {"arguments": piece}} for piece in pieces]


def written(text: str, *, plain: bool) -> str:
    return json.dumps({"input": text}, ensure_ascii=not plain)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("plain", [True, False])
def test_the_text_is_what_the_model_wrote(text: str, plain: bool) -> None:
    assert restore_custom_call(call("code", written(text, plain=plain)), {"code"}) == {
        "id": "c1",
        "type": "custom",
        "custom": {"name": "code", "input": text},
    }


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 3, 7])
def test_pieces_make_up_the_same_text(text: str, size: int) -> None:
    for plain in (True, False):
        calls = CustomCalls({"code"})
        sent = [more for part in parts(written(text, plain=plain), size) if (more := calls.delta(part))]
        assert not list(calls.rest())
        assert sent[0] == {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "code", "input": ""}}
        assert all(set(more) == {"index", "custom"} and more["custom"]["input"] for more in sent[1:])
        assert "".join(more["custom"]["input"] for more in sent) == text


def test_functions_stay_as_they_are() -> None:
    whole = call("f", '{"input": "a"}')
    assert restore_custom_call(whole, {"code"}) is whole
    calls = CustomCalls({"code"})
    sent = parts('{"input": "a"}', 2, name="f")
    assert [calls.delta(part) for part in sent] == sent
    assert not list(calls.rest())


@pytest.mark.parametrize("arguments", ['{"code": "a"}', "print(1)", '{"input": 5}', "[1]"])
def test_arguments_without_the_text_are_given_as_they_are(arguments: str) -> None:
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
