"""The OpenAPI document: FastAPI's, with what it cannot know, because routes read their bodies themselves.

    @router.post("/embeddings", openapi_extra=documented(EmbeddingsRequest, EmbeddingsReply))

Types are pydantic models or TypedDicts of the contract, the same that the code builds its replies with.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

import contract
from contract.errors import ErrorReply

FIELDS = Path(contract.__file__).with_name("fields.toml")
"""Meanings of fields with types that do not say it."""
ATTRIBUTE = re.compile(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {6,}.*)*)", re.MULTILINE)
"""One line under `Attributes:` of a docstring, and what is wrapped."""

REFERENCE = "#/components/schemas/{model}"

_types: list[Any] = []
"""Types that routes refer to. All become one set of schemas, so that equal names are kept apart."""


def documented(
    request: Any,
    reply: Any,
    *,
    optional: bool = False,
    status: int = 200,
    streams: bool = False,
    keyed: bool = True,
    error: Any = ErrorReply,
    takes_api_key_header: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """`openapi_extra` of a route that takes `request` as JSON (None: no body) and answers with `reply` or an error.

    `optional`: no body is the same as an empty one. A route with another `status` than 200 sets it in FastAPI too.
    `more` is passed on as it is (`parameters` of the route). `error` is the shape of errors where it is another, and
    `takes_api_key_header` as in `admit`.
    """
    content = _json(reply)
    if streams:
        content["text/event-stream"] = {}  # readers differ in whether a schema is that of an event or of all of them
    operation: dict[str, Any] = {
        **more,
        "responses": {str(status): {"description": _about(reply), "content": content}, "default": _error(error)},
    }
    if keyed:
        operation["security"] = [{"key": []}] + [{"x-api-key": []}] * takes_api_key_header
    if request is not None:
        operation["requestBody"] = {"required": not optional, "content": _json(request)}
    return operation


def documented_form(request: Any, reply: Any, *, file: str, texts: Iterable[str], **more: Any) -> dict[str, Any]:
    """`openapi_extra` of a route that takes `request` as JSON, or its fields in a form that brings `file`.

    `texts` are the media types in which it may answer besides.
    """
    operation = documented(request, reply, streams=True, **more)
    operation["responses"]["200"]["content"] |= {kind: {"schema": {"type": "string"}} for kind in texts}
    part = {"type": "object", "properties": {file: {"type": "string", "format": "binary"}}, "required": [file]}
    form = {"schema": {"allOf": [_json(request)["application/json"]["schema"], part]}}
    operation["requestBody"]["content"] = {"multipart/form-data": form, **operation["requestBody"]["content"]}
    return operation


def documented_audio(request: Any, *, keyed: bool = True) -> dict[str, Any]:
    """`openapi_extra` of a route that answers 200 with the bytes of an audio file."""
    operation = documented(request, ErrorReply, keyed=keyed)
    sound = {"audio/*": {"schema": {"type": "string", "format": "binary"}}}
    if request is not None:
        sound["text/event-stream"] = {}
    operation["responses"]["200"] = {"description": "An audio file.", "content": sound}
    return operation


def documented_events(event: Any) -> dict[str, Any]:
    """`openapi_extra` of a route that answers with server-sent events; their data is an `event`."""
    operation = documented(None, event)
    schema = operation["responses"]["200"]["content"].pop("application/json")["schema"]
    operation["responses"]["200"]["content"]["text/event-stream"] = {"x-event": schema}
    return operation


def documented_messages(message: Any, reply: Any, *, keyed: bool = True) -> dict[str, Any]:
    """`openapi_extra` of a route of JSON-RPC: an error is an Error object of this API, or a reply that holds one."""
    operation = documented(message, reply, streams=True, keyed=keyed)
    operation["responses"]["202"] = {"description": "A notification was taken."}
    operation["responses"]["default"]["content"] = _json(ErrorReply | reply)
    return operation


def not_available() -> dict[str, Any]:
    """`openapi_extra` of a route that answers with errors only."""
    return {"security": [{"key": []}], "responses": {"501": _error(), "default": _error()}}


def document(app: FastAPI) -> dict[str, Any]:
    """The document of `app`, made once."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        adapters = [(index, "validation", TypeAdapter(kind)) for index, kind in enumerate(_types)]
        schemas, rest = TypeAdapter.json_schemas(adapters, ref_template=REFERENCE)  # type: ignore[arg-type]  # keys are numbers
        components: dict[str, Any] = schema.setdefault("components", {})
        components["schemas"] = _described(rest["$defs"])
        components["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer"},
            "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
        for operations in schema["paths"].values():
            for operation in operations.values():
                # FastAPI documents a 200 of no content and a 422 of its own shape, which no route here answers.
                operation["responses"].pop("422", None)
                for parameter in operation.get("parameters", ()):
                    parameter.setdefault("description", _fields()["path"].get(parameter["name"]))
                if "501" in operation["responses"]:
                    operation["responses"].pop("200", None)
        app.openapi_schema = _resolved(schema, [schemas[index, "validation"] for index in range(len(_types))])
    return app.openapi_schema


def written(app: FastAPI) -> bytes:
    """The same as JSON, written once: each time it would hold up all others for a millisecond."""
    if not hasattr(app.state, "document"):
        app.state.document = json.dumps(document(app), ensure_ascii=False, separators=(",", ":")).encode()
    written_once: bytes = app.state.document
    return written_once


def _described(definitions: dict[str, Any]) -> dict[str, Any]:
    """The definitions, in which every field says what it means. A type's docstring keeps only what is of the whole."""
    written = _fields()
    for name, definition in definitions.items():
        docstring = definition.pop("description", "")
        meant = written["any"] | written.get(name, {}) | meanings(docstring)
        if about := inspect.cleandoc(docstring).partition("Attributes:\n")[0].strip():
            definition["description"] = about
        for field, schema in definition.get("properties", {}).items():
            if field in meant:
                line = meant[field]
                schema["description"] = f"{line[:1].upper()}{line[1:].rstrip('.')}."
    return definitions


@cache
def _fields() -> dict[str, dict[str, str]]:
    return tomllib.loads(FIELDS.read_text("utf-8"))


def meanings(docstring: str) -> dict[str, str]:
    """Returns what the docstring of a type says of its fields, each on one line and without pointers into the code."""
    _, _, attributes = inspect.cleandoc(docstring).partition("Attributes:\n")
    return {field: plain(text) for fields, text in ATTRIBUTE.findall(attributes) for field in fields.split(", ")}


def plain(text: str) -> str:
    """`text` on one line, without pointers into specification and code."""
    return re.sub(r" ?\((?:spec |design |`contract)[^)]*\)", "", " ".join(text.split()))


def _resolved(node: Any, references: list[dict[str, Any]]) -> Any:
    """`node` with the schema of a type wherever its number stands."""
    if isinstance(node, dict):
        if isinstance(number := node.get(_TYPE), int):
            return references[number]
        return {key: _resolved(child, references) for key, child in node.items()}
    return [_resolved(child, references) for child in node] if isinstance(node, list) else node


_TYPE = "x-type"
"""Stands in for a schema until all types are known."""


def _json(kind: Any) -> dict[str, Any]:
    if kind not in _types:
        _types.append(kind)
    return {"application/json": {"schema": {_TYPE: _types.index(kind)}}}


def _error(kind: Any = ErrorReply) -> dict[str, Any]:
    return {"description": _about(kind), "content": _json(kind)}


def _about(kind: Any) -> str:
    return (getattr(kind, "__doc__", None) or "").strip()
