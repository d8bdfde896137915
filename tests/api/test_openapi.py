"""The OpenAPI document tells the truth: its schemas hold for the replies that the app gives."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from tests.api.conftest import MESSAGE, Api

pytestmark = pytest.mark.anyio

CALLS: list[tuple[str, str, Any]] = [
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/{model_id}", None),
    ("GET", "/v1/me", None),
    ("GET", "/v1/audio/voices", None),
    ("GET", "/healthz", None),
    ("POST", "/v1/chat/completions", {"model": "obedient", "messages": [MESSAGE]}),
    ("POST", "/v1/embeddings", {"model": "lengths", "input": "x"}),
    ("POST", "/v1/rerank", {"query": "q", "documents": ["x"], "return_documents": True}),
]


@pytest.fixture
async def document(api: Api) -> dict[str, Any]:
    document: dict[str, Any] = (await api.client.get("/openapi.json")).json()
    return document


def check(document: dict[str, Any], operation: dict[str, Any], status: str, body: Any) -> None:
    schema = operation["responses"][status]["content"]["application/json"]["schema"]
    jsonschema.validate(body, {**schema, "components": document["components"]})


@pytest.mark.parametrize(("method", "path", "body"), CALLS, ids=[path for _, path, _ in CALLS])
async def test_reply_is_as_documented(api: Api, document: dict[str, Any], method: str, path: str, body: Any) -> None:
    reply = await api.send(method, path.format(model_id="obedient"), json=body)
    assert reply.status_code == 200
    check(document, document["paths"][path][method.lower()], "200", reply.json())


@pytest.mark.parametrize(("method", "path", "body"), CALLS, ids=[path for _, path, _ in CALLS])
async def test_errors_are_as_documented(api: Api, document: dict[str, Any], method: str, path: str, body: Any) -> None:
    operation = document["paths"][path][method.lower()]
    if "security" in operation:
        reply = await api.client.request(method, path)
        assert reply.status_code == 401
        check(document, operation, "default", reply.json())
    if body:
        check(document, operation, "default", (await api.send(method, path, json={})).json())


@pytest.mark.parametrize(("method", "path", "body"), CALLS, ids=[path for _, path, _ in CALLS])
async def test_bodies_that_are_taken_are_as_documented(
    document: dict[str, Any], method: str, path: str, body: Any
) -> None:
    operation = document["paths"][path][method.lower()]
    assert ("requestBody" in operation) == (body is not None)
    if body:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        jsonschema.validate(body, {**schema, "components": document["components"]})


async def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            here = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return here.union(*(references(child) for child in node.values()))
        return set().union(*(references(child) for child in node)) if isinstance(node, list) else set()

    schemas = document["components"]["schemas"]
    assert {name.rsplit("/", 1)[1] for name in references(document)} <= set(schemas)


async def test_only_paths_with_the_version_are_documented(document: dict[str, Any]) -> None:
    assert {path for path in document["paths"] if not path.startswith("/v1/")} == {"/healthz", "/files/{name}"}
