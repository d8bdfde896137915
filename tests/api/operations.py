"""Every operation that needs a key, from the route table, and every path that needs none.

The table of `build_app` makes them, so a new route brings its own.
"""

import json
from dataclasses import dataclass
from typing import cast

from fastapi.routing import APIRoute
from starlette.routing import Route

from contract.access import Scope
from deployments.ingress.app import build_app
from deployments.ingress.context import Service
from deployments.ingress.front.admission import MARK
from state import State
from tests.api.bodies import BODIES, FORM_TYPE, FORMS
from tests.catalogs import behaving, chat

CATALOG = behaving(obedient=chat("obedient"))
APP = build_app(Service(CATALOG, {}, cast(State, None)))
"""Its table of routes does not depend on engines or state."""

YEARS_S = 28 * 365 * 86_400
REFUSALS = {401, 402, 403, 429}


@dataclass(frozen=True)
class Operation:
    """A route with its path filled in, and as its template. `scope` is None where any valid key will do."""

    method: str
    path: str
    template: str
    methods: frozenset[str]
    scope: Scope | None

    @property
    def plain(self) -> str:
        """The path without the version."""
        return self.path.removeprefix("/v1")

    @property
    def body(self) -> bytes:
        """One that is answered as it should be where the route has a scope, else none."""
        fields = BODIES.get(self.plain) if self.method == "POST" else None
        return json.dumps(fields).encode() if fields else FORMS.get(self.plain, b"")

    @property
    def answers(self) -> set[int]:
        """Status of the answer once it is admitted."""
        return ANSWERS.get(self.plain, {200})

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Of that body."""
        return [(b"content-type", FORM_TYPE)] if self.plain in FORMS else []

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def keyed_routes() -> list[tuple[APIRoute, Scope | None]]:
    """The routes that need a key, each with its scope."""
    routes = [route for route in APP.routes if isinstance(route, APIRoute)]
    return [(route, vars(d.call)[MARK]) for route in routes for d in route.dependant.dependencies]


def _operations() -> list[Operation]:
    """All that need a key, from the route table, spelled with the version."""
    return [
        Operation(method, filled_in(route), route.path.removeprefix("/v1"), methods_at(filled_in(route)), scope)
        for route, scope in keyed_routes()
        if route.path.startswith("/v1/")
        for method in sorted(route.methods)
    ]


def filled_in(route: Route) -> str:
    """A path of the route."""
    return route.path_format.format_map(dict.fromkeys(route.param_convertors, "x"))


def methods_at(path: str) -> frozenset[str]:
    """Of all routes that a path leads to."""
    there = [route for route in APP.routes if isinstance(route, Route) and route.path_regex.match(path)]
    return frozenset(method for route in there for method in route.methods or ())


OPERATIONS = _operations()
DESIGNS = "/audio/voices/designs"
FREE = {"/mcp/mcp", f"{DESIGNS}/suggest", f"{DESIGNS}/x/adopt"}
"""Paths that cost nothing and need no engine. What a tool costs is refused in its result."""
NEED_VOICES = {DESIGNS, f"{DESIGNS}/suggest"}
"""Paths for plans with voices."""
ANSWERS = {DESIGNS: {202, 409}, f"{DESIGNS}/x/adopt": {404}}
"""What an admitted request is answered where that is not 200: an organisation has so many drafts at a time."""
CODES = {DESIGNS: "quota_exceeded"}
"""What a spend limit is called where it has a name of its own."""
SPENT_TYPES = {"/messages": "billing_error", "/messages/count_tokens": "billing_error"}
"""Its type, where the wire has one of its own."""
TAKE_API_KEY_HEADER = {"/messages", "/messages/count_tokens", "/models", "/models/x"}
"""Paths where the key may come as `x-api-key`."""
TWO_HEADERS = [operation for operation in OPERATIONS if operation.plain in TAKE_API_KEY_HEADER]
SCOPED = [operation for operation in OPERATIONS if operation.method == "POST" and operation.scope]
NEED_BUDGET = [operation for operation in SCOPED if operation.plain not in FREE]

ENDLESS = {"/console/events"}
"""Paths whose replies have no end."""

OPEN = {
    "/healthz": 200,
    "/openapi.json": 200,
    "/docs": 307,
    "/docs/{path}": 404,
    "/console": 404,
    "/console/{path}": 404,
    "/files/{name}": 403,
    "/audio/voices/{slug}/samples/{language}.mp3": 404,
    "/v1/audio/voices/{slug}/samples/{language}.mp3": 404,
    "/mcp/docs/mcp": 405,
    "/v1/mcp/docs/mcp": 405,
}
"""Paths without a key, and what they answer as they stand here: nobody signed this name, no voice is called
so, and there is no console."""
