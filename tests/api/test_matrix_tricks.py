"""Who has no key gets past no route by another spelling, method or header, or by a value that no key ever has."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlalchemy import event
from starlette.routing import Route

from deployments.ingress.app import build_app
from deployments.ingress.context import Service
from state import keys, open_state
from tests.api.asgi import ask
from tests.api.operations import (
    CATALOG,
    OPEN,
    OPERATIONS,
    TAKE_API_KEY_HEADER,
    TWO_HEADERS,
    Operation,
    filled_in,
    methods_at,
)
from tests.api.world import World, _bearer, world
from tests.state.servers import temporary_folder

__all__ = ["world"]


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
        methods = methods_at(path)  # of the routes that the spelling leads to
        for who, refusal in ("no header", 401), *([("nothing", 403)] if operation.scope else []):
            answer = await world.ask(operation, who, operation.body, path)
            assert answer.status == (refusal if operation.method in methods else 405 if methods else 404), path
            assert answer.error["message"]


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

        engine = state.database._engine  # type: ignore[attr-defined]
        event.listen(engine, "before_cursor_execute", listen)
        try:
            for value in _malformed(2000):
                answer = await ask(app, "GET", "/v1/me", [(b"authorization", value)])
                assert (answer.status, answer.error["type"]) == (401, "authentication_error"), value[:200]
                assert answer.headers["www-authenticate"] == "Bearer"
            assert not texts, "a checksum that is wrong must not reach the database"
            unknown = [await ask(app, "GET", "/v1/me", _bearer(keys.mint().text)) for _ in range(20)]
            assert {answer.status for answer in unknown} == {401}
        finally:
            event.remove(engine, "before_cursor_execute", listen)
            await state.close()
        assert len(texts - {"BEGIN IMMEDIATE"}) == 1
        assert {len(given) for given in parameters if given} == {1}
