"""One app and one state for the whole matrix, with all its organisations and keys."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from fastapi import FastAPI
from sqlalchemy import update

from contract.access import TARIFFS, Scope
from deployments.ingress.app import build_app
from deployments.ingress.context import Service
from state import State, keys, open_state
from state.database.tables import api_keys
from state.rates import Rates
from tests.api.asgi import Answer, ask
from tests.api.conftest import Api, client_of
from tests.api.engines import local_engines
from tests.api.operations import CATALOG, OPERATIONS, YEARS_S, Operation
from tests.state.servers import temporary_folder

SCOPE_SETS = {
    "nothing": frozenset[Scope](),
    **{f"only {scope}": frozenset({scope}) for scope in Scope},
    **{f"all but {scope}": frozenset(Scope) - {scope} for scope in Scope},
    "everything": frozenset(Scope),
}
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
        named = await _keys(Api(service, client_of(service)))
        made.headers |= {who: _bearer(key) for who, key in named.items()} | {"no header": []}
        made.headers |= {"wrong scheme": _bearer(named["everything"], "Basic"), "empty": [(b"authorization", b"")]}
        for who in ("used up", "used up, nothing"):
            await use_up(state, made.headers[who], leave=0)
        yield made
        await state.close()


NOT_AVAILABLE = {"/images/generations"}
"""Paths whose every admitted request is 501."""


async def _keys(api: Api) -> dict[str, str]:
    """Keys by what they may do, of one organisation for each plan and budget, and texts that are no keys."""
    for name, plan in {"big": "enterprise", "small": "free"}.items():
        await api.organisation(name, plan)
    made = {who: await api.key(*scopes, org="big") for who, scopes in SCOPE_SETS.items()}
    for plan in TARIFFS:
        await api.organisation(f"{plan}-plan", plan)
        for purpose in (*OPERATIONS, "rate"):
            made[f"{plan}, {purpose}"] = await api.key(*Scope, org=f"{plan}-plan")
    for limited in BUDGETS:
        await api.organisation(f"limited-{limited}", "enterprise")
        made[f"limited {limited}"] = await api.key(*Scope, org=f"limited-{limited}", user="ann")
        await api.limit(0, org=f"limited-{limited}", user="ann" if limited == "user" else None)
    made |= {"used up": await api.key(*Scope, org="small"), "used up, nothing": await api.key(org="small")}
    made |= {who: await api.key(*Scope, org="big") for who in ("revoked", "expired")}
    for who, column in {"revoked": api_keys.c.revoked_at, "expired": api_keys.c.expires_at}.items():
        ended = update(api_keys).where(api_keys.c.public_id == made[who].split("_")[1]).values({column: 1})
        await api.state.database.run(lambda connection, ended=ended: connection.execute(ended) and None)
    valid = made["everything"]
    flipped = valid[:-1] + ("a" if valid[-1] != "a" else "b")
    return made | {"malformed": valid[:-1], "bad checksum": flipped, "unknown": keys.mint().text}


def _bearer(text: str, scheme: str = "Bearer") -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"{scheme} {text}".encode())]


async def use_up(state: State, headers: list[tuple[bytes, bytes]], leave: int) -> None:
    """Counts requests of a key until `leave` are left."""
    caller = await state.accounts.authenticate(headers[0][1].decode())
    for _ in range(caller.tariff.requests_per_minute - leave):
        assert (await state.rates.hit(caller)).allowed
