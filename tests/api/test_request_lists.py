"""Arrays and objects in requests: each is bounded, and the first wrong item ends the reading.

A validator that goes on collects an error for every item: a body of nothing but wrong items held the event loop for
half a second.
"""

from __future__ import annotations

import ast
import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from contract.body import decode, parse
from contract.chat.request import ChatRequest
from contract.decisions.openai import DecisionBody
from contract.decisions.systemone import SystemOneRequest
from contract.errors import ApiError
from contract.limits import JSON_VALUES, LONG_BODY_BYTES
from contract.mcp import ChatArguments
from contract.messages.request import MessagesRequest
from contract.responses.request import ResponsesRequest
from deployments.ingress.app import OPEN_ROUTERS, ROUTERS, VERSIONED_ROUTERS
from deployments.ingress.front.concurrency import AnonymousClient, Holder
from deployments.ingress.mcp.tools import ACCOUNT_TOOLS, DOCS_TOOLS
from deployments.ingress.wire import openapi
from tests.api.conftest import Api
from tests.docs.pages import ROOT

SEQUENCES = frozenset({"list", "tuple", "set", "frozenset", "dict", "generator"})
NOT_READ = frozenset({"metadata", "json_schema_input_schema", "serialization"})
"""Of a schema, what nothing is validated by."""


def request_types() -> dict[str, Any]:
    """What each route and each tool takes, by the name of that type."""
    routes = (route for router in (*ROUTERS, *VERSIONED_ROUTERS, *OPEN_ROUTERS) for route in router.routes)
    bodies = (body for route in routes if (body := (getattr(route, "openapi_extra", None) or {}).get("requestBody")))
    found = [openapi._types[body["content"]["application/json"]["schema"][openapi._TYPE]] for body in bodies]
    found += [tool.arguments for tool in (*ACCOUNT_TOOLS.tools, *DOCS_TOOLS.tools)]
    return {kind.__name__: kind for kind in found}


def parts(schema: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each schema inside a core schema that values are held against, after the field that it stands in."""
    if isinstance(schema, list | tuple):
        for part in schema:
            yield from parts(part, place)
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("type"), str):
        yield place, schema
    inside = schema["cls"].__name__ if schema.get("type") == "model" else place
    for name, part in schema.items():
        if name == "fields" and isinstance(part, dict):
            for field, inner in part.items():
                yield from parts(inner, f"{place}.{field}")
        elif name not in NOT_READ:
            yield from parts(part, inside)


def is_data(schema: dict[str, Any]) -> bool:
    """Whether no item can be wrong. Then only the bounds of the body hold for it."""
    item = schema.get("items_schema") or schema.get("values_schema") or {"type": "any"}
    return isinstance(item, dict) and item["type"] == "any"


REQUESTS = request_types()


def test_what_routes_read_is_what_they_document() -> None:
    files = (ROOT / "deployments/ingress/routes").glob("*.py")
    calls = (
        node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Call)
    )
    read = {ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func) == "admitted.body"}
    assert len(read) > 10
    assert read - set(REQUESTS) == set()


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_each_list_of_a_request_is_bounded_and_ends_at_its_first_wrong_item(name: str) -> None:
    found = parts(TypeAdapter(REQUESTS[name]).core_schema, name)
    lists = [(place, one) for place, one in found if one["type"] in SEQUENCES and not is_data(one)]
    assert [place for place, one in lists if one.get("max_length") is None] == [], "without a bound"
    assert [place for place, one in lists if not one.get("fail_fast")] == [], "goes on after a wrong item"


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_one_unknown_field_is_enough_to_refuse_an_object(name: str) -> None:
    for _, one in parts(TypeAdapter(REQUESTS[name]).core_schema, name):
        model: type[BaseModel] = one.get("cls", BaseModel)
        if one["type"] != "model" or model.model_config.get("extra") != "forbid":
            continue
        with pytest.raises(ValidationError) as refused:
            model.model_validate({f"unknown {index}": 0 for index in range(5_000)})
        assert refused.value.error_count() <= len(model.model_fields) + 1
        assert [e["loc"] for e in refused.value.errors() if e["type"] == "extra_forbidden"] == [("unknown 0",)]


WRONG = JSON_VALUES - 1_000
TURNS = [{"role": "user", "content": [0] * 250}] * (WRONG // 256)
MEMBERS = {f"k{index}": 0 for index in range(WRONG // 2)}


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (ChatRequest, {"model": "x", "messages": TURNS}),
        (ResponsesRequest, {"model": "x", "input": TURNS}),
        (ResponsesRequest, {"model": "x", "input": "x", "metadata": MEMBERS}),
        (MessagesRequest, {"model": "x", "max_tokens": 5, "messages": TURNS}),
        (DecisionBody, {"messages": [0] * WRONG}),
        (DecisionBody, {"input": [0] * (WRONG // 2), "questions": [0] * (WRONG // 2)}),
        (DecisionBody, {"state": "x", "questions": MEMBERS}),
        (DecisionBody, MEMBERS),
        (SystemOneRequest, {"state": "x", "questions": {"q": {"type": "choice", "criteria": MEMBERS}}}),
        (ChatArguments, {"messages": [0] * WRONG}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_body_of_wrong_values_costs_little_more_than_its_json(model: type[BaseModel], body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()

    def refused() -> None:
        with pytest.raises(ApiError, match="invalid_request"):
            parse(model, raw)

    # It was 20 to 80 times as much.
    assert spent_s(refused) < 5 * spent_s(lambda: decode(raw))


def spent_s(work: Callable[[], object]) -> float:
    """The least processor time of five runs."""

    def once() -> float:
        began_s = time.thread_time()
        work()
        return time.thread_time() - began_s

    return min(once() for _ in range(5))


@pytest.mark.parametrize(("length", "apart"), [(LONG_BODY_BYTES, False), (LONG_BODY_BYTES + 1, True)])
async def test_others_take_a_step_between_two_long_bodies(api: Api, length: int, apart: bool) -> None:
    caller = await api.caller()
    order: list[str] = []

    async def somebody_else() -> None:
        for _ in range(40):
            order.append("step")
            await asyncio.sleep(0)

    async def body() -> None:
        async with api.service.concurrency.reading_turn(caller, length):
            order.append("body")

    await asyncio.gather(*(body() for _ in range(8)), somebody_else())
    assert order.count("body") == 8
    assert ("body body" not in " ".join(order)) is apart


async def test_organisations_take_turns_at_having_long_bodies_read(api: Api) -> None:
    flood = await api.caller()
    victim = replace(flood, org_id=flood.org_id + 1, key_id="another")
    order: list[str] = []

    async def body(holder: Holder, name: str) -> None:
        async with api.service.concurrency.reading_turn(holder, LONG_BODY_BYTES + 1):
            order.append(name)

    strangers = [body(AnonymousClient("192.0.2.1"), "stranger") for _ in range(20)]
    await asyncio.gather(*(body(flood, "flood") for _ in range(50)), *strangers, body(victim, "victim"))
    assert len(order) == 71
    assert order.index("victim") <= 3
