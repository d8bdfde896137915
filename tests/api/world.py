"""One app and one state for the whole matrix: all its organisations and keys are made in one transaction."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from fastapi import FastAPI
from sqlalchemy import Connection

from contract.access import TARIFFS, Scope
from deployments.ingress.app import build_app
from deployments.ingress.context import Service
from state import State, keys, open_state
from state.accounts import api_keys, organisations
from state.accounts.authentication import PEPPER
from state.keys import Key, Keyring
from state.rates import Rates
from tests.api.asgi import Answer, ask
from tests.api.engines import local_engines
from tests.api.operations import CATALOG, OPERATIONS, YEARS_S, Operation
from tests.state.servers import temporary_folder

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
    "expired": "expired_api_key",
}
BUDGETS = {"organisation": "org_spend_limit", "user": "user_spend_limit"}


@dataclass
class World:
    """The app and every kind of `Authorization` value, by name."""

    app: FastAPI
    service: Service
    state: State
    headers: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)

    async def ask(self, operation: Operation, who: str, body: bytes = b"", path: str | None = None) -> Answer:
        """One request with the headers of `who`."""
        headers = self.headers[who] + operation.headers
        return await ask(self.app, operation.method, path or operation.path, headers, body)


@pytest.fixture(scope="package")
async def world() -> AsyncIterator[World]:
    with temporary_folder() as home:
        state = await open_state(home)
        # A window of a minute could end between two requests of one test; this one ends in 2053.
        state.rates = Rates(window_s=YEARS_S)
        service = Service(CATALOG, local_engines(CATALOG), state)
        made = World(build_app(service), service, state)
        pepper = state.secrets.derive(PEPPER)
        for who, key in (await state.database.run(lambda connection: _populate(connection, pepper))).items():
            made.headers[who] = _bearer(key.text)
        made.headers |= _keyless(made.headers["everything"][0][1].decode().split()[1])
        for who in ("used up", "used up, nothing"):
            await use_up(state, made.headers[who], leave=0)
        yield made
        await state.close()


NOT_AVAILABLE = {"/images/generations"}
"""Paths whose every admitted request is 501."""


def _populate(connection: Connection, pepper: Keyring) -> dict[str, Key]:
    """Organisations and keys: one of each scope set, and one of each plan and budget."""
    made: dict[str, Key] = {}

    def key(who: str, org_id: int, scopes: frozenset[Scope], user_id: int | None = None, **more: int) -> None:
        made[who] = keys.mint()
        about = {"org_id": org_id, "user_id": user_id, "scopes": scopes, "label": None, "now_s": int(time.time())}
        api_keys.store(connection, made[who], pepper, **about, **more)

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
    key("expired", big, frozenset(Scope), expires_at=1)
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


async def use_up(state: State, headers: list[tuple[bytes, bytes]], leave: int) -> None:
    """Counts requests of a key until `leave` are left."""
    caller = await state.accounts.authenticate(headers[0][1].decode())
    for _ in range(caller.tariff.requests_per_minute - leave):
        assert (await state.rates.hit(caller)).allowed
