"""Page of the site with every route, its fields and an example, made of the OpenAPI document."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI
from fastapi.routing import APIRoute

from deployments.ingress.app import build_app
from deployments.ingress.context import Service
from deployments.ingress.front.admission import MARK
from docs.made import schemas

Types = dict[str, Any]
"""Schemas by name."""

EXAMPLES = Path(__file__).parent / "examples.toml"
REPLIES = Path(__file__).parent / "replies.json"
"""What a real server answered; `replies.py` asks one."""

INTRODUCTION = """\
# Reference

<!-- Made by `make docs` of the OpenAPI document and docs/made/examples.toml. -->

Every route with what it takes, its bounds and defaults, and an example. How a route behaves is in [api.md](api.md);
errors are in [errors.md](errors.md). The same for programs is `GET /openapi.json`. Every path works with `/v1` and
without, `/healthz` and `/files` only as they stand here. A field without a default may be left out, unless it is
required. Replies are those of `make serve`, with two entries of each list.

The examples run as they stand beside `make serve`, in the folder of the repository, once this shell knows the key:

<!-- run -->
```bash
export PARLANCE_KEY=$(cat var/demo.key)
```

"""


@dataclass(frozen=True, slots=True)
class Example:
    """A stanza of `examples.toml`.

    Attributes:
        see: place at which docs/api.md describes the route.
        shell: commands that a reader can paste; curl comes last.
        status: of the last reply.
        needs: preconditions of the example beyond a server that has just started.
    """

    see: str
    shell: str
    status: int = 200
    needs: str = ""


def examples() -> dict[str, Example]:
    """By route, e.g. `POST /v1/rerank`."""
    return {route: Example(**stanza) for route, stanza in tomllib.loads(EXAMPLES.read_text("utf-8")).items()}


@cache
def replies() -> dict[str, Any]:
    """By route, of those that answer with JSON."""
    kept: dict[str, Any] = json.loads(REPLIES.read_text("utf-8"))
    return kept


def callers(app: FastAPI) -> dict[str, str]:
    """By route, who may call it, in words."""
    return {
        f"{method} {route.path_format}": _caller(route)
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }


def _caller(route: APIRoute) -> str:
    marks = [getattr(d.call, MARK) for d in route.dependant.dependencies if hasattr(d.call, MARK)]
    if not marks:
        return "no key"
    return f"scope `{marks[0]}`" if marks[0] else "any key"


def page() -> str:
    """The whole page: a list of the routes, a section for each, and the types that they name."""
    app = build_app(cast(Service, None))  # only a request asks the service
    document, who, shown = app.openapi(), callers(app), examples()
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    if missing := operations.keys() ^ shown.keys():
        raise ValueError(f"docs/made/examples.toml and the routes of the app differ in {', '.join(sorted(missing))}")
    listed = [f"- [`{route}`](#{_anchor(route)}): {who[route]}" for route in operations]
    known = document["components"]["schemas"]
    sections = [_section(route, operation, who[route], shown[route], known) for route, operation in operations.items()]
    types = list(_types(operations.values(), known))
    return INTRODUCTION + "\n".join([*listed, "", "## Routes", "", *sections, "## Types", "", *types])


def _anchor(route: str) -> str:
    return "".join(letter for letter in route.lower().replace(" ", "-") if letter.isalnum() or letter in "-_")


def _section(route: str, operation: dict[str, Any], caller: str, example: Example, known: Types) -> str:
    first, _, _ = operation.get("description", "").partition("\n\n")
    needs = f"Needs {caller}." + (f" The example wants {example.needs}." if example.needs else "")
    lines = [f"### {route}", "", f"{' '.join(first.split())} {needs} [Behaviour](api.md#{example.see}).", ""]
    if body := operation.get("requestBody"):
        headers = [
            f"`{parameter['name']}`" for parameter in operation.get("parameters", ()) if parameter["in"] == "header"
        ]
        obeyed = f" Obeys {', '.join(headers)}." if headers else ""
        lines += [f"Takes {_media(body['content'])}.{obeyed}", ""]
        for name in _bodies(operation, known):
            lines += [_fields(known[name], is_request=True), ""]
    lines += [
        f"Answers {_media(_success(operation))}.",
        "",
        "<!-- run -->",
        "```bash",
        example.shell.strip(),
        "```",
        "",
    ]
    if route in replies():
        lines += ["```json", json.dumps(replies()[route], indent=2, ensure_ascii=False), "```", ""]
    return "\n".join(lines)


def _bodies(operation: dict[str, Any], known: Types) -> list[str]:
    """Types of the body whose fields stand in the section itself: all that are objects."""
    content = operation.get("requestBody", {}).get("content", {})
    names = dict.fromkeys(name for media in content.values() for name in schemas.named(media["schema"]))
    return [name for name in names if "properties" in known[name]]


def _success(operation: dict[str, Any]) -> dict[str, Any]:
    """Content by media type of the one reply that is no error; of the error where there is no other."""
    replies = operation["responses"]
    content: dict[str, Any] = next(replies[status] for status in ("200", "202", "501") if status in replies)["content"]
    return content


def _media(content: dict[str, Any]) -> str:
    """Media types, those of one schema together."""
    by_words: dict[str, list[str]] = {}
    for media, value in content.items():
        if media == "text/event-stream":
            by_words.setdefault("events", []).append(f"`{media}`")
        elif value["schema"]:  # FastAPI documents JSON of any shape beside what a route says
            by_words.setdefault(schemas.words(value["schema"]), []).append(f"`{media}`")
    return "; ".join(f"{', '.join(media)}: {words}" for words, media in by_words.items())


def _types(operations: Iterable[dict[str, Any]], known: Types) -> Iterator[str]:
    """A table for each type that an operation names, and for those that these name: first what is taken."""
    operations = list(operations)
    shown = {name for operation in operations for name in _bodies(operation, known)}
    request_types = _reached([operation.get("requestBody", {}) for operation in operations], known)
    for name in dict.fromkeys([*request_types, *_reached([operation["responses"] for operation in operations], known)]):
        about = schemas.about(known[name])
        where = "See the route above." if name in shown else _fields(known[name], is_request=name in request_types)
        yield "\n\n".join([f"### {name}", *([about] if about else []), where]) + "\n"


def _reached(roots: list[Any], known: Types) -> list[str]:
    """Names of the types that `roots` refer to, and that these refer to."""
    names = list(dict.fromkeys(schemas.named(roots)))
    for name in names:  # grows while it is read
        names += [other for other in dict.fromkeys(schemas.named(known[name])) if other not in names]
    return names


def _fields(schema: dict[str, Any], *, is_request: bool) -> str:
    """The table of an object; of another type what it may be. The fields of a request may have defaults."""
    if not (fields := schema.get("properties")):
        return schemas.words(schema) + "."
    required = schema.get("required", ())
    lines = ["| field | takes | default | |" if is_request else "| field | is | | |", "|---|---|---|---|"]
    for name, value in fields.items():
        if is_request:
            absent = "required" if name in required else schemas.default(value)
        else:
            absent = "" if name in required else "may be missing"
        words = schemas.words(value, nulls=not is_request)
        lines.append(f"| `{name}` | {words} | {absent} | {schemas.cell(value['description'])} |".replace("  |", " |"))
    return "\n".join(lines)
