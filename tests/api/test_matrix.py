"""Permissions: every operation of the route table with every state of a key, plan and budget.

The route table makes the cases (`tests.api.operations`). Every path has two spellings, with and without
`/v1`. One test shows that both lead to the same endpoints, all others ask with `/v1`. One app and one state serve all
of them (`tests.api.world`).
"""

import re
from dataclasses import replace
from itertools import product
from typing import Any, cast

import pytest
from fastapi import APIRouter, FastAPI
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import Message

from contract.access import TARIFFS
from contract.limits import CHAT_BODY_BYTES, SPEECH_BODY_BYTES
from deployments.ingress import app as ingress_app
from deployments.ingress.app import build_app, check_routes, only_admission
from deployments.ingress.context import Service
from state import State
from tests.api.asgi import Answer, ask
from tests.api.bodies import BODIES, FORMS
from tests.api.operations import (
    CATALOG,
    CODES,
    NEED_BUDGET,
    NEED_VOICES,
    OPEN,
    OPERATIONS,
    REFUSALS,
    SCOPED,
    SPENT_TYPES,
    TAKE_API_KEY_HEADER,
    TWO_HEADERS,
    Operation,
    filled_in,
    keyed_routes,
    methods_at,
)
from tests.api.world import BUDGETS, KEYLESS, NOT_AVAILABLE, SCOPE_SETS, World, use_up, world

__all__ = ["world"]


def test_both_spellings_of_every_path_lead_to_the_same_endpoint() -> None:
    table = {route.path: (route.methods, route.endpoint, scope) for route, scope in keyed_routes()}
    assert len(OPERATIONS) >= 12
    assert {route.removeprefix("/v1") for route in table} == {operation.template for operation in OPERATIONS}
    assert all(table[f"/v1{path}"] == table[path] for path in table if not path.startswith("/v1/"))
    assert len(table) == 2 * len({operation.template for operation in OPERATIONS})


def test_every_operation_with_a_scope_has_a_body_here() -> None:
    assert {operation.plain for operation in SCOPED} == {*BODIES, *FORMS}


async def test_without_a_valid_key_it_is_401(world: World) -> None:
    for operation, (who, code) in product(OPERATIONS, KEYLESS.items()):
        answer = await world.ask(operation, who, operation.body)
        error, asked_by = answer.error, (str(operation), who)
        assert (answer.status, error["type"], error["code"]) == (401, "authentication_error", code), asked_by
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "x-ratelimit-limit" not in answer.headers


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
async def test_the_scope_decides_and_every_reply_tells_the_rate(world: World, operation: Operation) -> None:
    for who in SCOPE_SETS.keys() & {"nothing", f"only {operation.scope}", f"all but {operation.scope}", "everything"}:
        answer = await world.ask(operation, who, operation.body)
        if operation.scope is None or operation.scope in SCOPE_SETS[who]:
            check_admitted(operation, answer)
        else:
            error = answer.error
            assert (answer.status, error["type"], error["code"]) == (403, "permission_error", "missing_scope"), who
        assert answer.headers["x-ratelimit-limit"] == str(TARIFFS["enterprise"].requests_per_minute)
        assert {"x-ratelimit-remaining", "x-ratelimit-reset"} <= answer.headers.keys()


def check_admitted(operation: Operation, answer: Answer) -> None:
    """The answer is what the operation gives to a key that may do it."""
    assert not operation.body or answer.status in operation.answers
    assert answer.status not in REFUSALS
    assert answer.status < 500 or (answer.status == 501 and operation.plain in NOT_AVAILABLE)


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
async def test_the_short_way_answers_as_the_whole_of_fastapi(
    world: World, operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingress_app, "only_admission", lambda route: None)
    whole = replace(world, app=build_app(world.service))
    bodies = (operation.body, b"", b"{", b"[1]", b'{"surplus": 1}')
    cases = [("everything", body) for body in bodies] + [(who, b"{") for who in (*KEYLESS, "nothing", "used up")]
    for who, body in cases:
        short, long = [_comparable(await each.ask(operation, who, body)) for each in (world, whole)]
        assert short == long, (who, body)


async def test_the_server_starts_and_stops_the_app(world: World) -> None:
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    answers: list[str] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        answers.append(message["type"])

    await world.app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
    assert answers == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_the_short_way_serves_what_needs_an_admission_and_no_more() -> None:
    short = {route.path for route, _ in keyed_routes() if only_admission(route)}
    assert {"/v1/chat/completions", "/audio/speech", "/v1/decisions", "/v1/embeddings"} < short
    assert all("{" in route.path for route, _ in keyed_routes() if route.path not in short)


def _comparable(answer: Answer) -> tuple[int, dict[str, str], str]:
    """What two answers to one request have in common: numbers differ, and what an engine has made by chance."""
    texts = {name: _NUMBERS.sub("#", text) for name, text in answer.headers.items() if name != "content-length"}
    return answer.status, texts, "" if answer.status < 400 else _NUMBERS.sub("#", answer.body.decode())


_NUMBERS = re.compile(r"\b\w*\d[\w.-]*")


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
async def test_length_key_scope_rate_body_come_in_this_order(world: World, operation: Operation) -> None:
    too_long = [(b"content-length", str(max(CHAT_BODY_BYTES, SPEECH_BODY_BYTES) + 1).encode())]
    assert (await ask(world.app, operation.method, operation.path, too_long)).status == 413
    assert (await world.ask(operation, "unknown", b"{")).status == 401
    scoped = operation.scope is not None
    assert (await world.ask(operation, "used up, nothing", b"{")).status == (403 if scoped else 429)
    refused = await world.ask(operation, "used up", b"{")
    assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
    assert refused.headers["retry-after"] == refused.headers["x-ratelimit-reset"]


@pytest.mark.parametrize("plan", TARIFFS)
async def test_the_plan_sets_the_rate(world: World, plan: str) -> None:
    who, me = f"{plan}, rate", next(operation for operation in OPERATIONS if operation.path == "/v1/me")
    await use_up(world.state, world.headers[who], leave=1)
    last = await world.ask(me, who)
    assert (last.status, last.headers["x-ratelimit-remaining"]) == (200, "0")
    assert last.headers["x-ratelimit-limit"] == str(TARIFFS[plan].requests_per_minute)
    assert (await world.ask(me, who)).status == 429


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
async def test_the_plan_decides_about_voices_alone(world: World, operation: Operation) -> None:
    for plan in TARIFFS:
        answer = await world.ask(operation, f"{plan}, {operation}", operation.body)
        if operation.plain in NEED_VOICES and operation.method == "POST" and not TARIFFS[plan].voices:
            assert (answer.status, answer.error["code"]) == (403, "voice_not_in_plan"), plan
        else:
            check_admitted(operation, answer)


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
async def test_a_budget_that_is_spent_ends_what_costs_money(world: World, operation: Operation) -> None:
    for limited, code in BUDGETS.items():
        answer = await world.ask(operation, f"limited {limited}", operation.body)
        if operation in NEED_BUDGET:
            type_ = SPENT_TYPES.get(operation.plain, "insufficient_quota")
            assert (answer.status, answer.error["type"]) == (402, type_)
            assert answer.error["code"] == CODES.get(operation.plain, code)
        else:
            check_admitted(operation, answer)


async def _nothing() -> None: ...


def test_a_router_without_a_scope_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    router = APIRouter()
    router.get("/unkeyed")(_nothing)
    monkeypatch.setattr(ingress_app, "ROUTERS", (*ingress_app.ROUTERS, router))
    with pytest.raises(RuntimeError, match="/v1/unkeyed declares no scope"):
        build_app(Service(CATALOG, {}, cast(State, None)))


@pytest.mark.parametrize(
    "route",
    [Route("/side", _nothing), Mount("/side", FastAPI()), WebSocketRoute("/side", _nothing)],
    ids=lambda route: type(route).__name__,
)
def test_nothing_can_be_put_beside_the_routes(route: Any) -> None:
    app = build_app(Service(CATALOG, {}, cast(State, None)))
    app.routes.append(route)
    with pytest.raises(RuntimeError, match="/side declares no scope"):
        check_routes(app)


PATH_TRICKS = (
    *(f"{{path}}{end}" for end in ("/", "/.", "//", "\0", "%00", ";x=1", " ", ".json")),
    *(f"{start}{{path}}" for start in ("/", "/healthz/..", "/x/../", "/v1", "/v2", "http://127.0.0.1")),
)
HEADER_TRICKS = (
    *((b"host", name) for name in (b"", b"a/?x=", b"/healthz?", b"\xff\x00")),
    (b"x-forwarded-host", b"127.0.0.1"),
    (b"x-forwarded-for", b"127.0.0.1"),
    (b"x-forwarded-prefix", b"/healthz"),
    (b"x-original-url", b"/healthz"),
    (b"x-rewrite-url", b"/healthz"),
    (b"x-http-method-override", b"GET"),
    (b"cookie", b"authorization=anything"),
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "pOST", "X", "")


async def test_no_spelling_of_a_path_gets_past(world: World) -> None:
    for operation in OPERATIONS:
        spelled = [trick.format(path=operation.path) for trick in PATH_TRICKS]
        for path in (*spelled, operation.path.upper(), operation.path.replace("/", "\\"), operation.path[1:]):
            methods = methods_at(path)  # of the routes that the spelling leads to
            for who, refusal in ("no header", 401), *([("nothing", 403)] if operation.scope else []):
                answer = await world.ask(operation, who, operation.body, path)
                assert answer.status == (refusal if operation.method in methods else 405 if methods else 404), path
                assert answer.error["message"]


async def test_no_other_header_is_a_key(world: World) -> None:
    for operation, header in product(OPERATIONS, HEADER_TRICKS):
        answer = await ask(world.app, operation.method, operation.path, [header], operation.body)
        assert (answer.status, answer.error["code"]) == (401, "missing_api_key"), (str(operation), header)


async def test_the_header_of_anthropics_clients_is_a_key_where_it_is_taken(world: World) -> None:
    for operation, who in product(OPERATIONS, ("everything", "nothing", "unknown", "malformed", "revoked")):
        key = world.headers[who][0][1].removeprefix(b"Bearer ")
        headers = [(b"x-api-key", key), *operation.headers]
        answer = await ask(world.app, operation.method, operation.path, headers, operation.body)
        if operation.plain not in TAKE_API_KEY_HEADER:
            assert (answer.status, answer.error["code"]) == (401, "missing_api_key"), (str(operation), who)
        else:
            assert answer.status == (await world.ask(operation, who, operation.body)).status, (str(operation), who)


async def test_two_headers_must_hold_one_key(world: World) -> None:
    bearer, other = world.headers["everything"][0], world.headers["nothing"][0][1].removeprefix(b"Bearer ")
    rows = (
        (bearer[1], bearer[1].removeprefix(b"Bearer "), 200),
        (bearer[1], b"", 200),
        (b"", bearer[1].removeprefix(b"Bearer "), 200),
        (bearer[1], other, 401),
        (b"Basic x", other, 401),
        (b"Bearer " + other, bearer[1].removeprefix(b"Bearer "), 401),
        (bearer[1].replace(b"Bearer", b"Basic"), bearer[1].removeprefix(b"Bearer "), 401),
    )
    for operation, (authorization, key, status) in product(TWO_HEADERS, rows):
        headers = [(b"authorization", authorization), (b"x-api-key", key)]
        answer = await ask(world.app, operation.method, operation.path, headers, operation.body)
        found = 404 if operation.plain == "/models/x" else 200
        assert answer.status == (found if status == 200 else status), (str(operation), authorization[:12], key[:12])


async def test_other_methods_do_nothing(world: World) -> None:
    for operation, method in product(OPERATIONS, METHODS):
        if method not in operation.methods:
            answer = await ask(world.app, method, operation.path, world.headers["everything"], operation.body)
            assert (answer.status, answer.error["code"]) == (405, "method_not_allowed"), (method, str(operation))
            assert set(answer.headers["allow"].split(", ")) == operation.methods


async def test_only_these_are_open(world: World) -> None:
    keyed = {path for operation in OPERATIONS for path in (operation.path, operation.plain)}
    listed = {route.path_format: route for route in world.app.routes if isinstance(route, Route)}
    opened = {path for path, route in listed.items() if filled_in(route) not in keyed}
    assert opened == set(OPEN)
    for path, status in OPEN.items():
        assert (await ask(world.app, "GET", path)).status == status
