"""The OpenAPI document: FastAPI's, with what it cannot know, because routes read their bodies themselves.

@router.post("/embeddings", openapi_extra=documented(EmbeddingsRequest, EmbeddingsReply))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from contract.replies import ErrorReply

REFERENCE = "#/components/schemas/{model}"

_documented: set[type[BaseModel]] = {ErrorReply}
"""Models that routes refer to."""


def documented(
    request: type[BaseModel] | None, reply: type[BaseModel], *, streams: bool = False, keyed: bool = True, **more: Any
) -> dict[str, Any]:
    """`openapi_extra` of a route that takes `request` as JSON and answers 200 with `reply`, or with an error.

    `more` is passed on as it is (`parameters` of the route).
    """
    content = _json(reply)
    if streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    operation: dict[str, Any] = {
        **more,
        "responses": {
            "200": {"description": (reply.__doc__ or "").strip(), "content": content},
            "default": {"description": (ErrorReply.__doc__ or "").strip(), "content": _json(ErrorReply)},
        },
    }
    if keyed:
        operation["security"] = [{"key": []}]
    if request:
        operation["requestBody"] = {"required": True, "content": _json(request)}
    return operation


def documented_audio(request: type[BaseModel] | None, *, keyed: bool = True) -> dict[str, Any]:
    """`openapi_extra` of a route that answers 200 with the bytes of an audio file."""
    operation = documented(request, ErrorReply, keyed=keyed)
    sound = {"audio/*": {"schema": {"type": "string", "format": "binary"}}}
    if request:
        sound["text/event-stream"] = {"schema": {"type": "string"}}
    operation["responses"]["200"] = {"description": "An audio file.", "content": sound}
    return operation


def document(app: FastAPI) -> dict[str, Any]:
    """The document of `app`, made once."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        _, definitions = models_json_schema(
            [(model, "validation") for model in sorted(_documented, key=lambda model: model.__name__)],
            ref_template=REFERENCE,
        )
        components: dict[str, Any] = schema.setdefault("components", {})
        components.setdefault("schemas", {}).update(definitions["$defs"])
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for operations in schema["paths"].values():
            for operation in operations.values():
                # FastAPI documents a 422 of its own shape, which no route here answers.
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            components["schemas"].pop(name, None)
        app.openapi_schema = schema
    return app.openapi_schema


def _json(model: type[BaseModel]) -> dict[str, Any]:
    _documented.add(model)
    schema: Mapping[str, Any] = {"$ref": REFERENCE.format(model=model.__name__)}
    return {"application/json": {"schema": schema}}
