"""Numbers that no double holds: refused in every body, before any work, with the place where they stand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.bodies import BODIES
from tests.api.conftest import Api

JSON_BODIES: dict[str, Any] = BODIES | {"/audio/transcriptions": {"upload_id": "x"}}
JSON = {"content-type": "application/json"}


def with_number(body: dict[str, Any], number: str) -> bytes:
    return json.dumps(body | {"extra": {"deep": [0, "number"]}}).replace('"number"', number).encode()


@pytest.mark.parametrize("path", sorted(set(JSON_BODIES) - {"/mcp/mcp"}))
async def test_a_number_that_is_infinite_is_400_and_its_place_is_named(api: Api, path: str) -> None:
    for number in ("1e999", "-1e999"):
        reply = await api.send("POST", f"/v1{path}", content=with_number(JSON_BODIES[path], number), headers=JSON)
        error = reply.json()["error"]
        assert reply.status_code == 400, reply.text
        assert f"`extra.deep[1]` is {number}, which is outside the range of numbers" in error["message"]
    assert await api.usage() == []


async def test_a_number_that_is_infinite_is_no_message_of_mcp(api: Api) -> None:
    headers = JSON | {"accept": "application/json, text/event-stream"}
    for path in ("/mcp/mcp", "/mcp/docs/mcp"):
        body = with_number(JSON_BODIES["/mcp/mcp"], "1e999")
        reply = await api.send("POST", f"/v1{path}", content=body, headers=headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, -32700)
        assert "`extra.deep[1]` is 1e999" in reply.json()["error"]["message"]


async def test_a_schema_with_an_infinite_number_costs_nothing_and_one_with_a_huge_number_is_repeated(api: Api) -> None:
    tool = {"type": "function", "name": "f", "parameters": {"maximum": "number"}}
    text = json.dumps({"model": "obedient", "input": "say hello", "tools": [tool]})
    for number, status in (("1e999", 400), ("1" + "0" * 400, 200), ("1.7976931348623157e308", 200)):
        reply = await api.send("POST", "/v1/responses", content=text.replace('"number"', number), headers=JSON)
        assert reply.status_code == status, reply.text
        if status == 400:
            assert reply.json()["error"]["param"] == "tools[0].parameters.maximum"
        else:
            assert reply.json()["tools"][0]["parameters"]["maximum"] == json.loads(number)
    assert len(await api.usage()) == 2
