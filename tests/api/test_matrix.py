"""Who may do what: every operation of the route table with every state of a key, plan and budget.

The table of `build_app` makes the cases, so a new route brings its own. Every path has two spellings, with and without
`/v1`. One test shows that both lead to the same endpoints, all others ask with `/v1`. One app and one state serve all
of them, and all organisations and keys are made in one transaction.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from sqlalchemy import Connection, Engine, event
from starlette.routing import Mount, Route, WebSocketRoute

from contract.access import TARIFFS, Scope
from contract.limits import CHAT_BODY_BYTES, SPEECH_BODY_BYTES
from deployments.ingress import app as ingress_app
from deployments.ingress.app import build_app, check_routes
from deployments.ingress.context import Service
from deployments.ingress.front.admission import MARK
from state import State, open_state
from state.accounts import api_keys, keys, organisations
from state.accounts.authentication import PEPPER
from state.accounts.keys import Key
from state.keyring import Keyring
from state.rates import Rates
from tests.api.asgi import Answer, ask
from tests.api.bodies import BODIES, FORM_TYPE, FORMS
from tests.api.conftest import LocalEngine
from tests.catalogs import behaving, chat
from tests.state.servers import temporary_folder

pytestmark = pytest.mark.anyio

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
        """What it is answered when it is admitted."""
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

SCOPE_SETS = {
    "nothing": frozenset[Scope](),
    **{f"only {scope}": frozenset({scope}) for scope in Scope},
    **{f"all but {scope}": frozenset(Scope) - {scope} for scope in Scope},
    "everything": frozenset(Scope),
}
SCOPE_CASES = [
    (operation, who)
    for operation in OPERATIONS
    for who in ("nothing", f"only {operation.scope}", f"all but {operation.scope}", "everything")
    if who in SCOPE_SETS
]
"""Each operation with a key for nothing, for its own scope, for all other scopes, and for everything."""
KEYLESS = {
    "no header": "missing_api_key",
    "empty": "missing_api_key",
    "wrong scheme": "invalid_api_key",
    "malformed": "invalid_api_key",
    "bad checksum": "invalid_api_key",
    "unknown": "invalid_api_key",
    "revoked": "invalid_api_key",
}
BUDGETS = {"organisation": "org_spend_limit", "user": "user_spend_limit"}


@dataclass
class World:
    """The app and every kind of `Authorization` value, by name."""

    app: FastAPI
    state: State
    headers: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)

    async def ask(self, operation: Operation, who: str, body: bytes = b"", path: str | None = None) -> Answer:
        """One request with the headers of `who`."""
        headers = self.headers[who] + operation.headers
        return await ask(self.app, operation.method, path or operation.path, headers, body)


@pytest.fixture(scope="module")
async def world() -> AsyncIterator[World]:
    with temporary_folder() as home:
        state = await open_state(home)
        # A window of a minute could end between two requests of one test; this one ends in 2053.
        state.rates = Rates(window_s=YEARS_S)
        engines = {model.deployment: LocalEngine(model) for model in CATALOG.deployed()}
        made = World(build_app(Service(CATALOG, engines, state)), state)
        pepper = state.secrets.derive(PEPPER)
        for who, key in (await state.database.run(lambda connection: _populate(connection, pepper))).items():
            made.headers[who] = _bearer(key.text)
        made.headers |= _keyless(made.headers["everything"][0][1].decode().split()[1])
        for who in ("used up", "used up, nothing"):
            await _use_up(state, made.headers[who], leave=0)
        yield made
        await state.close()


NOT_AVAILABLE = {"/images/generations"}
"""Paths whose every admitted request is 501."""


def _populate(connection: Connection, pepper: Keyring) -> dict[str, Key]:
    """Organisations and keys: one of each scope set, and one of each plan and budget."""
    made: dict[str, Key] = {}

    def key(who: str, org_id: int, scopes: frozenset[Scope], user_id: int | None = None) -> None:
        made[who] = keys.mint()
        now_s = int(time.time())
        api_keys.store(
            connection, made[who], pepper, org_id=org_id, user_id=user_id, scopes=scopes, label=None, now_s=now_s
        )

    big = organisations.create(connection, "big", "enterprise", (), 1)
    for who, scopes in SCOPE_SETS.items():
        key(who, big, scopes)
    for plan in TARIFFS:
        org_id = organisations.create(connection, f"{plan}-plan", plan, (), 1)
        for purpose in (*OPERATIONS, "rate"):
            key(f"{plan}, {purpose}", org_id, frozenset(Scope))
    for limited in BUDGETS:
        org_id = organisations.create(connection, f"limited-{limited}", "enterprise", (), 1)
        user_id = organisations.ensure_user(connection, org_id, "ann", 1)
        organisations.set_limit(connection, org_id, user_id if limited == "user" else None, 0)
        key(f"limited {limited}", org_id, frozenset(Scope), user_id)
    small = organisations.create(connection, "small", "free", (), 1)
    key("used up", small, frozenset(Scope))
    key("used up, nothing", small, frozenset())
    key("revoked", big, frozenset(Scope))
    api_keys.revoke(connection, made["revoked"].public_id, 1)
    return made


def _keyless(valid: str) -> dict[str, list[tuple[bytes, bytes]]]:
    flipped = valid[:-1] + ("a" if valid[-1] != "a" else "b")
    return {
        "no header": [],
        "empty": [(b"authorization", b"")],
        "wrong scheme": [(b"authorization", f"Basic {valid}".encode())],
        "malformed": _bearer(valid[:-1]),
        "bad checksum": _bearer(flipped),
        "unknown": _bearer(keys.mint().text),
    }


def _bearer(text: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {text}".encode())]


async def _use_up(state: State, headers: list[tuple[bytes, bytes]], leave: int) -> None:
    """Counts requests of a key until `leave` are left."""
    caller = await state.accounts.authenticate(headers[0][1].decode())
    for _ in range(caller.tariff.requests_per_minute - leave):
        assert (await state.rates.hit(caller)).allowed


# --- keys and scopes -------------------------------------------------------------------------------------------------


def test_both_spellings_of_every_path_lead_to_the_same_endpoint() -> None:
    table = {route.path: (route.methods, route.endpoint, scope) for route, scope in keyed_routes()}
    assert len(OPERATIONS) >= 12
    assert {route.removeprefix("/v1") for route in table} == {operation.template for operation in OPERATIONS}
    assert all(table[f"/v1{path}"] == table[path] for path in table if not path.startswith("/v1/"))
    assert len(table) == 2 * len({operation.template for operation in OPERATIONS})


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
async def test_the_path_without_the_version_is_guarded_alike(world: World, operation: Operation) -> None:
    for who, refusal in (("no header", 401), ("nothing", 403 if operation.scope else None), ("everything", None)):
        answer = await world.ask(operation, who, operation.body, operation.plain)
        if refusal:
            assert answer.status == refusal, who
        else:
            check_admitted(operation, answer)


def test_every_operation_with_a_scope_has_a_body_here() -> None:
    assert {operation.plain for operation in SCOPED} == {*BODIES, *FORMS}


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
async def test_without_a_valid_key_it_is_401(world: World, operation: Operation) -> None:
    for who, code in KEYLESS.items():
        answer = await world.ask(operation, who, operation.body)
        error = answer.error
        assert (answer.status, error["type"], error["code"]) == (401, "authentication_error", code), who
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "x-ratelimit-limit" not in answer.headers


@pytest.mark.parametrize(("operation", "who"), SCOPE_CASES, ids=str)
async def test_the_scope_decides(world: World, operation: Operation, who: str) -> None:
    answer = await world.ask(operation, who, operation.body)
    if operation.scope is None or operation.scope in SCOPE_SETS[who]:
        check_admitted(operation, answer)
    else:
        assert (answer.status, answer.error["code"]) == (403, "missing_scope")
    assert answer.headers["x-ratelimit-limit"] == str(TARIFFS["enterprise"].requests_per_minute)


def check_admitted(operation: Operation, answer: Answer) -> None:
    """The answer is what the operation gives to a key that may do it."""
    assert not operation.body or answer.status in operation.answers
    assert answer.status not in REFUSALS
    assert answer.status < 500 or (answer.status == 501 and operation.plain in NOT_AVAILABLE)


# --- order, rate, plan and budget ------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
async def test_length_key_scope_rate_body_come_in_this_order(world: World, operation: Operation) -> None:
    too_long = [(b"content-length", str(max(CHAT_BODY_BYTES, SPEECH_BODY_BYTES) + 1).encode())]
    assert (await ask(world.app, operation.method, operation.path, too_long)).status == 413
    scoped = operation.scope is not None
    assert (await world.ask(operation, "used up, nothing", b"{")).status == (403 if scoped else 429)
    refused = await world.ask(operation, "used up", b"{")
    assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
    assert refused.headers["retry-after"] == refused.headers["x-ratelimit-reset"]


@pytest.mark.parametrize("plan", TARIFFS)
async def test_the_plan_sets_the_rate(world: World, plan: str) -> None:
    who, me = f"{plan}, rate", next(operation for operation in OPERATIONS if operation.path == "/v1/me")
    await _use_up(world.state, world.headers[who], leave=1)
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
@pytest.mark.parametrize("limited", BUDGETS)
async def test_a_budget_that_is_spent_ends_what_costs_money(world: World, operation: Operation, limited: str) -> None:
    answer = await world.ask(operation, f"limited {limited}", operation.body)
    if operation in NEED_BUDGET:
        assert (answer.status, answer.error["type"]) == (402, SPENT_TYPES.get(operation.plain, "insufficient_quota"))
        assert answer.error["code"] == CODES.get(operation.plain, BUDGETS[limited])
    else:
        check_admitted(operation, answer)


OPEN = {
    "/healthz": 200,
    "/openapi.json": 200,
    "/files/{name}": 403,
    "/audio/voices/{slug}/samples/{language}.mp3": 404,
    "/v1/audio/voices/{slug}/samples/{language}.mp3": 404,
    "/mcp/docs/mcp": 405,
    "/v1/mcp/docs/mcp": 405,
}
"""Paths without a key, and what they answer as they stand here: nobody signed this name, no voice is called so."""


# --- tricks ----------------------------------------------------------------------------------------------------------

PATH_TRICKS = (
    "/{path}",
    "{path}/",
    "{path}/.",
    "{path}//",
    "{path}\0",
    "{path}%00",
    "{path};x=1",
    "{path} ",
    "{path}.json",
    "/healthz/..{path}",
    "/x/../{path}",
    "/v1{path}",
    "/v2{path}",
    "http://127.0.0.1{path}",
)
HEADER_TRICKS = (
    (b"host", b""),
    (b"host", b"a/?x="),
    (b"host", b"/healthz?"),
    (b"host", b"\xff\x00"),
    (b"x-forwarded-host", b"127.0.0.1"),
    (b"x-forwarded-for", b"127.0.0.1"),
    (b"x-forwarded-prefix", b"/healthz"),
    (b"x-original-url", b"/healthz"),
    (b"x-rewrite-url", b"/healthz"),
    (b"x-http-method-override", b"GET"),
    (b"cookie", b"authorization=anything"),
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "pOST", "X", "")


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
async def test_no_spelling_of_a_path_gets_past(world: World, operation: Operation) -> None:
    spelled = [trick.format(path=operation.path) for trick in PATH_TRICKS]
    for path in (*spelled, operation.path.upper(), operation.path.replace("/", "\\"), operation.path[1:]):
        answer = await world.ask(operation, "no header", operation.body, path)
        assert answer.status in {401, 404, 405}, path
        assert answer.error["message"]
        if operation.scope:
            refused = await world.ask(operation, "nothing", operation.body, path)
            assert refused.status in {403, 404, 405}, path


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
async def test_no_other_header_is_a_key(world: World, operation: Operation) -> None:
    for header in HEADER_TRICKS:
        answer = await ask(world.app, operation.method, operation.path, [header], operation.body)
        assert (answer.status, answer.error["code"]) == (401, "missing_api_key"), header


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
async def test_the_header_of_anthropics_clients_is_a_key_where_it_is_taken(world: World, operation: Operation) -> None:
    for who in ("everything", "nothing", "unknown", "malformed", "revoked"):
        key = world.headers[who][0][1].removeprefix(b"Bearer ")
        headers = [(b"x-api-key", key), *operation.headers]
        answer = await ask(world.app, operation.method, operation.path, headers, operation.body)
        if operation.plain not in TAKE_API_KEY_HEADER:
            assert (answer.status, answer.error["code"]) == (401, "missing_api_key"), who
        else:
            assert answer.status == (await world.ask(operation, who, operation.body)).status, who


@pytest.mark.parametrize("operation", TWO_HEADERS, ids=str)
async def test_two_headers_must_hold_one_key(world: World, operation: Operation) -> None:
    bearer, other = world.headers["everything"][0], world.headers["nothing"][0][1].removeprefix(b"Bearer ")
    for authorization, key, status in (
        (bearer[1], bearer[1].removeprefix(b"Bearer "), 200),
        (bearer[1], b"", 200),
        (b"", bearer[1].removeprefix(b"Bearer "), 200),
        (bearer[1], other, 401),
        (b"Basic x", other, 401),
        (b"Bearer " + other, bearer[1].removeprefix(b"Bearer "), 401),
        (bearer[1].replace(b"Bearer", b"Basic"), bearer[1].removeprefix(b"Bearer "), 401),
    ):
        headers = [(b"authorization", authorization), (b"x-api-key", key)]
        answer = await ask(world.app, operation.method, operation.path, headers, operation.body)
        found = 404 if operation.plain == "/models/x" else 200
        assert answer.status == (found if status == 200 else status), (authorization[:12], key[:12])


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
async def test_other_methods_do_nothing(world: World, operation: Operation) -> None:
    for method in set(METHODS) - operation.methods:
        answer = await ask(world.app, method, operation.path, world.headers["everything"], operation.body)
        assert (answer.status, answer.error["code"]) == (405, "method_not_allowed"), method
        assert set(answer.headers["allow"].split(", ")) == operation.methods


async def test_only_these_are_open(world: World) -> None:
    keyed = {path for operation in OPERATIONS for path in (operation.path, operation.plain)}
    listed = {route.path_format: route for route in world.app.routes if isinstance(route, Route)}
    opened = {path for path, route in listed.items() if filled_in(route) not in keyed}
    assert opened == set(OPEN)
    for path, status in OPEN.items():
        assert (await ask(world.app, "GET", path)).status == status


# --- malformed values ------------------------------------------------------------------------------------------------


def _malformed(count: int) -> list[bytes]:
    """Values of `Authorization` that no key ever has."""
    dice = random.Random(20261120)
    key = keys.mint().text
    sql = ("' OR 1=1 --", "'; DROP TABLE api_keys; --", '" UNION SELECT * FROM api_keys --', "%' ESCAPE '", "$1", ":id")
    pieces = [
        *sql,
        "\0",
        "\x7f",
        "\t",
        "é",
        "\u202e",
        "😀",
        "Bearer",
        "bearer",
        "Basic",
        "prl_",
        "_",
        key,
        key[:12],
        "%",
    ]

    def noise() -> bytes:
        return dice.randbytes(dice.choice((0, 1, 7, 60, 200)))

    makers = (
        lambda: noise(),
        lambda: b"Bearer " + noise(),
        lambda: "".join(dice.choices(pieces, k=dice.randint(2, 6))).encode(),
        lambda: b"Bearer " + "".join(dice.choices(pieces, k=dice.randint(2, 6))).encode(),
        lambda: f"Bearer {key[:4]}{dice.choice(sql)}{key[4:]}".encode(),
        lambda: b"Bearer " + _flipped(key, dice).encode(),
        lambda: f"Bearer {key}{dice.choice(' ,;|')}{key}".encode(),
        lambda: b"Bearer " + dice.choice((b"A", b"\0", b"\xff", b"' ", key.encode())) * dice.choice((600, 65_536)),
        lambda: (
            f"{dice.choice(('Basic', 'Digest', 'Token', 'Bearer:', 'Bearer=', 'Bea rer', 'Ｂearer'))} {key}".encode()
        ),
    )
    return [makers[index % len(makers)]() for index in range(count)]


def _flipped(key: str, dice: random.Random) -> str:
    """The key with one character changed, so that its checksum or its shape is wrong."""
    at = dice.randrange(len(key))
    return key[:at] + dice.choice([c for c in keys.BASE62 + "_-.é'" if c != key[at]]) + key[at + 1 :]


async def test_2000_malformed_values_are_401_and_one_sql_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state.open.SWEEP_S", 3600)  # its statements are not the clients'
    with temporary_folder() as home:
        state = await open_state(home)
        app = build_app(Service(CATALOG, {}, state))
        texts: set[str] = set()
        parameters: list[Any] = []

        def listen(_: Any, __: Any, text: str, given: Any, *___: Any) -> None:
            texts.add(text)
            parameters.append(given)

        event.listen(Engine, "before_cursor_execute", listen)
        try:
            for value in _malformed(2000):
                answer = await ask(app, "GET", "/v1/me", [(b"authorization", value)])
                assert (answer.status, answer.error["type"]) == (401, "authentication_error"), value[:200]
                assert answer.headers["www-authenticate"] == "Bearer"
            assert not texts, "a checksum that is wrong must not reach the database"
            unknown = [await ask(app, "GET", "/v1/me", _bearer(keys.mint().text)) for _ in range(20)]
            assert {answer.status for answer in unknown} == {401}
        finally:
            event.remove(Engine, "before_cursor_execute", listen)
            await state.close()
        assert len(texts - {"BEGIN IMMEDIATE"}) == 1
        assert {len(given) for given in parameters if given} == {1}


# --- the start -------------------------------------------------------------------------------------------------------


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
