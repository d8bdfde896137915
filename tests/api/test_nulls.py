"""`null` for a field that may be left out means that it is left out: tried for every such field of the document.

Bodies below are small and valid, and together hold every object that a body may hold. Each field that the document
calls optional, and that a body lacks, is sent as null at its place: the answer must be the one that the body gets
without it.

And numbers that no double holds, which are refused in every body with the place where they stand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import jsonschema
import pytest

from tests.api.bodies import BODIES
from tests.api.conftest import Api
from tests.catalogs import REAL
from tests.waiting import until

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ADDRESS = f"data:image/png;base64,{PIXEL}"
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}

CHAT: dict[str, Any] = BODIES["/chat/completions"]
TALK = CHAT | {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "add"}]},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "a", "function": {"name": "add"}},
                {"id": "b", "type": "custom", "custom": {"name": "note", "input": "x"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "3"},
        {"role": "tool", "tool_call_id": "b", "content": "4"},
        {"role": "user", "content": "say hello"},
    ],
    "tools": [
        {"function": {"name": "add"}},
        {"type": "custom", "custom": {"name": "note"}},
        {"type": "custom", "custom": {"name": "paint", "format": {"type": "text"}}},
    ],
    "tool_choice": {"function": {"name": "add"}},
}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"function": {"name": "add"}}]}}
TALKS = (
    TALK,
    TALK | {"tool_choice": ALLOWED},
    CHAT | {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": ADDRESS}}]}]},
    CHAT | {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
    CHAT | {"response_format": {"type": "text"}},
    CHAT | {"structured_outputs": {"choice": ["a"]}},
    CHAT | {"structured_outputs": {"regex": "a"}},
    CHAT | {"stream_options": {}},
)
ASKED: dict[str, Any] = BODIES["/messages"]
CONVERSATION = {
    "model": "obedient",
    "messages": [
        {"role": "user", "content": "add"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "add", "input": {}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a"}, {"type": "text", "text": "say hello"}],
        },
    ],
    "tools": [{"name": "add", "input_schema": SCHEMA}, {"type": "web_search_20250305"}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "disabled"},
    "output_config": {},
}
ASKS = (
    CONVERSATION,
    ASKED | {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ASKED
    | {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                    {"type": "text", "text": "say hello"},
                ],
            }
        ]
    },
)
ANSWER = {"model": "obedient"}
FUNCTION = {"type": "function", "name": "add"}
GROUP = {
    "type": "namespace",
    "name": "crm",
    "tools": [{"type": "function", "name": "find"}],
}
INPUTS = (
    {"input": "say hello"},
    {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "add"}]},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            {"type": "function_call", "call_id": "a", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "3"},
            {"type": "custom_tool_call", "call_id": "b", "name": "note", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "b", "output": "3"},
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "c", "output": "3"},
            {"type": "apply_patch_call", "call_id": "d", "operation": {"type": "delete_file"}},
            {"type": "apply_patch_call_output", "call_id": "d"},
            {"type": "reasoning"},
            {"role": "user", "content": "say hello"},
        ],
        "tools": [FUNCTION, {"type": "custom", "name": "note"}, GROUP],
        "tool_choice": FUNCTION,
        "text": {"format": {"type": "text"}},
        "reasoning": {},
    },
    {"input": "say hello", "text": {}, "tools": [FUNCTION]}
    | {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION]}},
    {"input": "say hello", "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}},
    {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": ADDRESS}]}]},
)
BINARY = {"type": "binary", "instructions": "Is it?", "true_description": "it is", "false_description": "it is not"}
CHOICE = {"type": "choice", "instructions": "Which?", "options": [{"id": "a"}, {"id": "b", "description": "the other"}]}
OURS = (
    {"state": "a text", "questions": {"a": CHOICE, "b": BINARY}, "policy": {}},
    {"state": "a text", "questions": {"a": {"type": "score", "instructions": "How?", "levels": ["low", "high"]}}},
    {"messages": [{"role": "user", "content": "a text"}], "preset": "colour-v1", "policy": {"mode": "review_only"}},
)
CALL = {"type": "function_call", "name": "add", "arguments": "{}"}
THEIRS = {
    "input": [
        {"content": [{"type": "input_text", "text": "a text"}, {"type": "input_json", "data": {"a": 1}}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        CALL,
        {"type": "function_call_output", "output": "3"},
    ],
    "questions": [
        {"type": "predicate", "instructions": "Is it?"},
        {"type": "choice", "instructions": "Which?", "choices": [{"value": "a"}, {"value": True}]},
        {"type": "score", "instructions": "How?", "levels": [{"label": "low"}, {"label": "high"}]},
    ],
}
SYSTEM_ONE = {
    "state": {"a": 1},
    "questions": {"c": {"type": "choice", "criteria": {"a": "one", "b": "the other"}}, "n": {"type": "noul"}},
}
ASSET = {"format": "png", "data_base64": PIXEL}

RERANKS = (BODIES["/rerank"], {"query": "q", "documents": [{"text": "a"}, "bb"]})
ORDER = "/v1/audio/voices/designs"
TRANSCRIPTION = "/v1/audio/transcriptions"
ADOPTION = "/v1/audio/voices/designs/{design_id}/adopt"

SAMPLES: dict[str, tuple[dict[str, Any], ...]] = {
    "/v1/chat/completions": (CHAT, *TALKS),
    "/v1/messages": (ASKED, *({"max_tokens": 50} | asked for asked in ASKS)),
    "/v1/messages/count_tokens": (BODIES["/messages/count_tokens"], *ASKS),
    "/v1/responses": tuple(ANSWER | given for given in INPUTS),
    "/v1/completions": (BODIES["/completions"], BODIES["/completions"] | {"stream_options": {}}),
    "/v1/tokenize": (BODIES["/tokenize"], CHAT, *TALKS),
    "/v1/detokenize": (BODIES["/detokenize"],),
    "/v1/embeddings": (BODIES["/embeddings"],),
    "/v1/rerank": RERANKS,
    "/v2/rerank": RERANKS,
    "/v1/audio/speech": (
        BODIES["/audio/speech"],
        *(BODIES["/audio/speech"] | {"provider": "cosyvoice", style: "calm"} for style in ("instruction", "emotion")),
    ),
    "/v1/audio/uploads": (BODIES["/audio/uploads"],),
    "/v1/realtime/client_secrets": (
        BODIES["/realtime/client_secrets"],
        BODIES["/realtime/client_secrets"] | {"expires_after": {}},
    ),
    ORDER: (BODIES["/audio/voices/designs"], {"gender": "f", "age_group": next(iter(REAL.traits.age_groups))}),
    "/v1/audio/voices/designs/suggest": (BODIES["/audio/voices/designs/suggest"],),
    "/v1/decisions": (*OURS, THEIRS),
    "/v1/mcp/mcp": (BODIES["/mcp/mcp"],),
    "/v1/mcp/docs/mcp": (BODIES["/mcp/mcp"],),
    "/v1/systemone": (SYSTEM_ONE, SYSTEM_ONE | {"assets": {"a": {"format": "png", "data_base64": PIXEL}}}),
}
"""Bodies by path. `test_every_optional_field_is_tried` asks for another where one is missing."""

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


def let_decisions_see(api: Api) -> None:
    models = api.service.catalog.decisions
    for id, model in models.items():
        assert model.serving
        models[id] = model.model_copy(
            update={"serving": model.serving.model_copy(update={"options": {"images": True}})}
        )


@pytest.mark.parametrize("path", SAMPLES)
async def test_null_is_absent(api: Api, document: dict[str, Any], path: str) -> None:
    let_decisions_see(api)
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
