"""Of each route what the OpenAPI document does not say: who may call it, an example, where it is described."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from fastapi.routing import APIRoute

from deployments.ingress.front.admission import MARK

EXAMPLES = Path(__file__).parent / "examples.toml"


@dataclass(frozen=True, slots=True)
class Example:
    """A stanza of `examples.toml`.

    Attributes:
        see: where docs/api.md describes the route.
        shell: commands that a reader can paste; curl comes last.
        status: of the last reply.
        needs: what the example wants beyond a server that has just started.
    """

    see: str
    shell: str
    status: int = 200
    needs: str = ""


def examples() -> dict[str, Example]:
    """By route, e.g. `POST /v1/rerank`."""
    return {route: Example(**stanza) for route, stanza in tomllib.loads(EXAMPLES.read_text("utf-8")).items()}


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
