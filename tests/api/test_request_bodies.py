"""Fields of requests: null means absent, numbers are finite, and lists are bounded.

Each field that the document calls optional, and that one of the bodies in `tests.api.bodies` lacks, is sent as null at
its place: the answer must be the one that the body gets without it.

Of each array and object the first wrong item ends the reading: a validator that goes on collects an error for every
item, and a body of nothing but wrong items held the event loop for half a second.
"""

import ast
import asyncio
import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from contract.limits import LONG_BODY_BYTES
from deployments.ingress.app import OPEN_ROUTERS, ROUTERS, VERSIONED_ROUTERS
from deployments.ingress.front.concurrency import AnonymousClient, Holder
from deployments.ingress.mcp.tools import ACCOUNT_TOOLS, DOCS_TOOLS
from deployments.ingress.wire import openapi
from tests.api.bodies import ADOPTION, BODIES, ORDER, OURS, SAMPLES, TRANSCRIPTION
from tests.api.conftest import Api
from tests.catalogs import with_serving
from tests.docs.pages import ROOT
from tests.waiting import until

ALTERNATIVES = {
    # One of `file` and `upload_id` is there, and what brings a file is a form, which has no null.
    ("TranscriptionRequest", "upload_id"),
    # Of JSON-RPC: a message without an id is a notification, and one whose id is null is no message.
    ("RpcMessage", "id"),
}
"""Fields that are not tried here, and why."""

Field = tuple[str, str]
"""A schema of the document, and a field of it."""


def followed(node: dict[str, Any], schemas: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The schema that `node` stands for, and its name."""
    name = node.get("$ref", "").rsplit("/", 1)[-1]
    return (name, schemas[name]) if name else ("", node)


def optional(schema: dict[str, Any]) -> set[str]:
    return set(schema.get("properties", ())) - set(schema.get("required", ()))


def holes(value: Any, node: dict[str, Any], schemas: dict[str, Any], place: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Each optional field that an object in `value` lacks: the field, and where its object stands."""
    name, schema = followed(node, schemas)
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if jsonschema.Draft202012Validator(branch | {"components": {"schemas": schemas}}).is_valid(value):
            yield from holes(value, branch, schemas, place)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from holes(item, schema.get("items", {}), schemas, (*place, index))
    if isinstance(value, dict):
        yield from (((name, field), place) for field in sorted(optional(schema) - set(value)))
        others = schema.get("additionalProperties")
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, others if isinstance(others, dict) else {})
            yield from holes(item, inner, schemas, (*place, key))


def with_null(body: dict[str, Any], field: str, place: tuple[Any, ...]) -> dict[str, Any]:
    changed = deepcopy(body)
    node: Any = changed
    for step in place:
        node = node[step]
    node[field] = None
    return changed


VOLATILE = {"id", "created", "created_at", "completed_at", "timing_ms", "upload_id", "upload_url", "token"}


def settled(node: Any) -> Any:
    """`node` without what two equal requests are told differently."""
    if isinstance(node, dict):
        return {key: settled(v) for key, v in node.items() if key not in VOLATILE and not str(v).startswith("ek_")}
    return [settled(child) for child in node] if isinstance(node, list) else node


async def answer(api: Api, path: str, body: dict[str, Any]) -> Any:
    """All that a client learns. Of a draft only its members: what an order leaves open is drawn by chance."""
    reply = await api.send("POST", path, json=body)
    if not reply.headers["content-type"].startswith("application/json"):
        return reply.status_code, reply.headers["content-type"], reply.content
    told = reply.json()
    if path != ORDER or reply.status_code != 202:
        return reply.status_code, settled(told)
    # Few may be made at a time.
    await api.send("DELETE", f"{ORDER}/{told['id']}")
    return reply.status_code, sorted(told)


async def difference(api: Api, path: str, body: dict[str, Any], changed: dict[str, Any]) -> Any:
    """The answer to `changed`, unless it is that to `body`. Times differ once, if a second begins between the two."""
    for _ in range(3):
        expected = await answer(api, path, body)
        assert expected[0] in (200, 202), expected
        if (given := await answer(api, path, changed)) == expected:
            return None
    return given


def schema_of(document: dict[str, Any], path: str) -> dict[str, Any]:
    node: dict[str, Any] = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return node


def let_models_see(api: Api) -> None:
    models, chats = api.service.catalog.decisions, api.service.catalog.chat
    for id, model in models.items():
        models[id] = with_serving(model, options={"images": True})
    chats["obedient"] = chats["obedient"].model_copy(update={"vision": True})


@pytest.mark.parametrize("path", SAMPLES)
async def test_null_is_absent(api: Api, document: dict[str, Any], path: str) -> None:
    let_models_see(api)
    wrong = {}
    for body in SAMPLES[path]:
        for (schema, field), place in holes(body, schema_of(document, path), document["components"]["schemas"]):
            if given := await difference(api, path, body, with_null(body, field, place)):
                wrong[f"{schema}.{field} at {place}"] = given
    assert not wrong, json.dumps(wrong, indent=1, default=str)


@pytest.mark.parametrize(("path", "body"), [("/v1/decisions", OURS[0]), (ORDER, BODIES["/audio/voices/designs"])])
async def test_null_makes_no_field_known(api: Api, path: str, body: dict[str, Any]) -> None:
    status, told = await answer(api, path, body | {"timber": None})
    assert (status, told["error"]["param"]) == (400, "timber")


async def test_null_is_absent_in_an_uploaded_transcription(api: Api, document: dict[str, Any]) -> None:
    async def heard(**fields: Any) -> Any:
        ticket = (await api.send("POST", "/v1/audio/uploads", json={"mime": "audio/webm", "size": 5})).json()
        await api.client.put(ticket["upload_url"], content=b"hello", headers={"content-type": "audio/webm"})
        return await answer(api, TRANSCRIPTION, {"upload_id": ticket["upload_id"]} | fields)

    absent = await heard()
    assert absent[0] == 200, absent
    fields = optional(document["components"]["schemas"]["TranscriptionRequest"]) - {"upload_id"}
    assert {field: await heard(**{field: None}) for field in fields} == dict.fromkeys(fields, absent)


async def test_null_is_absent_in_an_adoption(api: Api) -> None:
    ordered = (await api.send("POST", ORDER, json=BODIES["/audio/voices/designs"])).json()

    async def is_ready() -> bool:
        return bool((await api.send("GET", f"{ORDER}/{ordered['id']}")).json()["status"] == "ready")

    await until(is_ready)
    body = {"slug": None, "label": None}
    reply = await api.send("POST", ADOPTION.format(design_id=ordered["id"]), json=body)
    assert (reply.status_code, reply.json()["label"]) == (200, ordered["label"])


async def test_every_optional_field_is_tried(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    known: set[Field] = set()
    seen: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            name, schema = followed(node, schemas)
            if name and name not in seen:
                seen.add(name)
                known.update((name, field) for field in optional(schema))
                walk(schema)
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            walk(child)

    paths = [path for path, methods in document["paths"].items() if "requestBody" in methods.get("post", {})]
    for path in paths:
        walk(schema_of(document, path))
    tried: set[Field] = set()
    for path, bodies in SAMPLES.items():
        tried.update(field for body in bodies for field, _ in holes(body, schema_of(document, path), schemas))
    tried |= {(name, field) for name in ("TranscriptionRequest", "AdoptRequest") for field in optional(schemas[name])}
    assert known - ALTERNATIVES == tried - ALTERNATIVES
    assert set(paths) == {*SAMPLES, TRANSCRIPTION, ADOPTION}


JSON = {"content-type": "application/json"}


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


SEQUENCES = frozenset({"list", "tuple", "set", "frozenset", "dict", "generator"})
NOT_READ = frozenset({"metadata", "json_schema_input_schema", "serialization"})
"""Of a schema, what nothing is validated by."""


def request_types() -> dict[str, Any]:
    """Types that routes and tools take, by their names."""
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
    """Says if no item can be wrong. Then only the bounds of the body hold for it."""
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


PARTS = [part for name, kind in REQUESTS.items() for part in parts(TypeAdapter(kind).core_schema, name)]


def test_each_list_of_a_request_is_bounded_and_ends_at_its_first_wrong_item() -> None:
    lists = [(place, one) for place, one in PARTS if one["type"] in SEQUENCES and not is_data(one)]
    assert [place for place, one in lists if one.get("max_length") is None] == [], "without a bound"
    assert [place for place, one in lists if not one.get("fail_fast")] == [], "goes on after a wrong item"


def test_one_unknown_field_is_enough_to_refuse_an_object() -> None:
    for _, one in PARTS:
        model: type[BaseModel] = one.get("cls", BaseModel)
        if one["type"] != "model" or model.model_config.get("extra") != "forbid":
            continue
        with pytest.raises(ValidationError) as refused:
            model.model_validate({f"unknown {index}": 0 for index in range(5_000)})
        assert refused.value.error_count() <= len(model.model_fields) + 1
        assert [e["loc"] for e in refused.value.errors() if e["type"] == "extra_forbidden"] == [("unknown 0",)]


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
