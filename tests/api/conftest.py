"""The whole HTTP contract without Ray: the real app and state, over engines that run in this process."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, cast
from unittest.mock import ANY

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import Connection, select
from starlette.middleware import Middleware

from autoscaling.engine import Engine
from autoscaling.gate import Gate
from contract.access import Caller, Scope
from contract.catalog import Catalog, Model
from contract.limits import KEY_CACHE_S
from deployments.ingress.app import build_app
from deployments.ingress.console import Console
from deployments.ingress.context import Service
from state import State, keys
from state.accounts import api_keys, organisations
from state.accounts.authentication import PEPPER
from state.blobs.open import open_blobs
from state.database.base import Clock, Database
from state.database.open import connect
from state.database.tables import metadata, usage_lines
from state.keys import Key, Secrets, open_secrets
from state.open import default_database
from state.rates import Rates
from tests.api.engines import Acting, LocalEngine, local_engines
from tests.api.ports import at_port
from tests.catalogs import behaving, chat
from tests.waiting import cancelled

ADDRESS = "http://test"
MESSAGE = {"role": "user", "content": "say hello"}


@dataclass
class Api:
    """A client of the app, and a key with every scope of the organisation `acme`, whose plan is `pro`."""

    service: Service = field(repr=False)  # a page long, and Hypothesis shows the arguments of its tests
    client: httpx.AsyncClient
    everything: str = ""

    @property
    def state(self) -> State:
        return self.service.state

    @property
    def app(self) -> FastAPI:
        return app_over(self.service)

    def changed(self, base_url: str = ADDRESS, **changes: Any) -> Api:
        """The same over a service that differs in these attributes."""
        service = replace(self.service, **changes)
        return Api(service, client_of(service, base_url), self.everything)

    def with_models(self, **kinds: Mapping[str, Model]) -> Api:
        """The same over a catalogue that has these models of a kind, as `speech={...}`."""
        return self.changed(catalog=self.service.catalog.model_copy(update=kinds))

    def without(self, *ids: str) -> Api:
        """The same where models of these names are known and not set up."""
        catalog = self.service.catalog
        nouns = {model.noun for model in catalog.models() if model.id in ids}
        absent = {"serving": None}
        return self.with_models(
            **{
                noun: {id: m.model_copy(update=absent) if id in ids else m for id, m in getattr(catalog, noun).items()}
                for noun in nouns
            }
        )

    def engine(self, deployment: str = "chat-obedient") -> LocalEngine:
        """The engine of a deployment."""
        engine = self.service.engines[deployment]
        assert isinstance(engine, LocalEngine)
        return engine

    def replace_engines(self, engine: Engine, *deployments: str) -> None:
        """Puts `engine` in the place of these deployments' engines."""
        engines = cast("dict[str, Engine]", self.service.engines)
        engines |= dict.fromkeys(deployments, engine)

    def all_act(self, *items: Any, error: Exception | None = None) -> Acting:
        """Has every engine give `items`, then raise `error` or hold its calls."""
        acting = Acting(*items, error=error)
        for deployment in self.service.engines:
            self.engine(deployment).adapter = acting
        return acting

    async def organisation(self, name: str, plan: str = "pro") -> None:
        """A new organisation without limits."""
        now_s = int(time.time())
        await self.state.database.run(lambda c: organisations.create(c, name, plan, (), now_s))

    async def change(self, org: str = "acme", **columns: Any) -> None:
        """Changes an organisation. Keys that were used before know it as it was."""
        await self.state.database.run(lambda c: organisations.change(c, org, columns))

    async def key(self, *scopes: Scope, org: str = "acme", user: str | None = None) -> str:
        """A new key, of a user if one is named."""
        key = keys.mint()
        await self.store(key, *scopes, org=org, user=user)
        return key.text

    async def store(self, key: Key, *scopes: Scope, org: str = "acme", user: str | None = None) -> None:
        """Stores a key that was minted before."""
        pepper, now_s = self.state.secrets.derive(PEPPER), int(time.time())

        def store(connection: Connection) -> None:
            org_id = organisations.find(connection, org).id
            user_id = organisations.ensure_user(connection, org_id, user, now_s) if user else None
            about = {"org_id": org_id, "user_id": user_id, "scopes": frozenset(scopes), "label": None, "now_s": now_s}
            api_keys.store(connection, key, pepper, **about)

        await self.state.database.run(store)

    async def stranger(self) -> str:
        """A key with every scope of another organisation, which is made for it."""
        await self.organisation("other")
        return await self.key(*Scope, org="other")

    async def caller(self, key: str | None = None) -> Caller:
        """Whom the app takes the key's holder for."""
        return await self.state.accounts.authenticate(f"Bearer {self.everything if key is None else key}")

    async def limit(self, micro_eur: int | None, org: str = "acme", user: str | None = None) -> None:
        """Sets a spend limit."""

        def change(connection: Connection) -> None:
            org_id = organisations.find(connection, org).id
            user_id = organisations.find_user(connection, org_id, user).id if user else None
            organisations.set_limit(connection, org_id, user_id, micro_eur)

        await self.state.database.run(change)

    async def usage(self) -> list[Any]:
        """All usage lines, oldest first."""
        query = select(usage_lines).order_by(usage_lines.c.id)
        return await self.state.database.run(lambda connection: list(connection.execute(query)))

    async def spend(self) -> dict[str, int]:
        """Spent and held amounts of the organisation, as its key reads them."""
        about: dict[str, int] = (await self.send("GET", "/v1/me")).json()["spend"]["organisation"]
        return about

    async def send(self, method: str, path: str, key: str | None = None, **request: Any) -> httpx.Response:
        """One request with the all-scopes key, unless another is given."""
        headers = {"Authorization": f"Bearer {self.everything if key is None else key}"} | request.pop("headers", {})
        return await self.client.request(method, path, headers=headers, **request)

    async def chat(self, text: str = "say hello", key: str | None = None, **fields: Any) -> httpx.Response:
        """One chat completion by the obedient engine."""
        body = {"model": "obedient", "messages": [{"role": "user", "content": text}], **fields}
        return await self.send("POST", "/v1/chat/completions", key, json=body)


def refused(reply: httpx.Response, status: int, code: str, param: str | None = ANY, says: str = "") -> dict[str, Any]:
    """The error of a reply, after its status, code, field and sentence were looked at. Fails for another one."""
    error: dict[str, Any] = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (status, code, param), reply.text
    assert says in error["message"]
    return error


def events(reply: httpx.Response) -> list[str]:
    """The data of each server-sent event."""
    return [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line.startswith("data: ")]


@cache
def routed() -> FastAPI:
    """The app without a service: to read the routes takes longer than most tests."""
    return build_app(cast(Service, None))


def app_over(service: Service) -> FastAPI:
    """The app over a service, with the routes that are read already."""
    app = copy(routed())
    app.user_middleware = [
        Middleware(one.cls, *one.args, **{**one.kwargs, "service": service}) if "service" in one.kwargs else one
        for one in app.user_middleware
    ]
    return app


def client_of(service: Service, base_url: str = ADDRESS, **transport: Any) -> httpx.AsyncClient:
    """A client of the app over a service. It holds no connection, so nobody has to close it."""
    over = httpx.ASGITransport(app_over(service), raise_app_exceptions=False, **transport)
    return httpx.AsyncClient(transport=over, base_url=base_url)


@asynccontextmanager
async def serving(catalog: Catalog, state: State, **options: Any) -> AsyncIterator[Api]:
    """The app over `catalog`, whose engines run in this process, for organisation `acme`. `options` are of Service."""
    engines = options.pop("engines", None) or local_engines(catalog)
    service = Service(catalog, engines, state, **{"console": Console(catalog, engines)} | options)
    service.drafts.pause_s = 0.001
    before = _tasks()
    api = Api(service, client_of(service))
    await api.organisation("acme")
    api.everything = await api.key(*Scope)
    yield api
    await service.drafts.close()
    await cancelled(*(_tasks() - before))
    assert census(service) == {}, "something is still held after the last request"


def census(service: Service) -> dict[str, int]:
    """Everything that requests hold of a service and that is not zero."""
    limits, live = service.concurrency, service.live
    counts = {
        "requests": limits.requests,
        "calls": limits.calls.total,
        "uploads": limits.uploads.total,
        "bytes of bodies": limits.body_bytes.total,
        "live sessions": len(live),
        "bytes of sound": live.sound_bytes.total,
    }
    for name, engine in service.engines.items():
        if isinstance(engine, Gate):
            counts |= {f"{name} at work": engine.queue.at_work, f"{name} waiting": engine.queue.waiting}
    return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True)
class Lent:
    """A database that stays open when the state over it is closed."""

    database: Database

    @property
    def run(self) -> Any:
        return self.database.run

    async def close(self) -> None:
        pass


class SettableClock(Clock):
    """The clock of the database, or `now_s` once a test has set it."""

    now_s: float | None = None

    def __init__(self, clock: Clock) -> None:
        self.adjust, self.said_s = clock.adjust, clock  # type: ignore[method-assign]

    def __call__(self) -> float:
        return self.said_s() if self.now_s is None else self.now_s


@dataclass(frozen=True)
class Ground:
    """Base of the states of all tests: to open it takes longer than most tests."""

    database: Database
    secrets: Secrets
    clock: Clock


@pytest.fixture(scope="package")
async def ground(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> AsyncIterator[Ground]:
    home = tmp_path_factory.mktemp("ground")
    shutil.copy(migrated, home)
    database = connect(default_database(home))
    yield Ground(database, open_secrets(home, is_shared=False), await Clock.by(database))
    await database.close()


def _empty(connection: Connection) -> None:
    """Deletes every row: the ids of the next ones begin with 1."""
    for table in reversed(metadata.sorted_tables):
        connection.execute(table.delete())


def _tasks() -> set[asyncio.Task[Any]]:
    """All but those in which tests and fixtures run."""
    return {task for task in asyncio.all_tasks() if "TestRunner" not in repr(task.get_coro())}


@pytest.fixture
async def state(ground: Ground, tmp_path: Path) -> AsyncIterator[State]:
    """A state with an empty database, counters and caches of its own; its bytes are in `tmp_path`."""
    before = _tasks()
    await ground.database.run(_empty)
    clock = SettableClock(ground.clock)
    opened = State(Lent(ground.database), ground.secrets, Rates(), open_blobs(tmp_path), clock)
    yield opened
    await opened.close()
    # What a test left running would write into the next one's database.
    await cancelled(*(_tasks() - before))


@pytest.fixture
async def api(state: State) -> AsyncIterator[Api]:
    async with serving(behaving(obedient=chat("obedient")), state) as api:
        yield api


@pytest.fixture
def pass_cache_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes what is known of keys too old to be believed."""

    def passed() -> None:
        monkeypatch.setattr(api.state.accounts, "_monotonic", lambda: time.monotonic() + KEY_CACHE_S)

    return passed


@pytest.fixture
async def address(api: Api) -> AsyncIterator[str]:
    """Where the app of `api` listens, for clients that want a socket."""
    async with at_port(app_over(api.service)) as address:
        yield address


@pytest.fixture
async def document(api: Api) -> dict[str, Any]:
    """The OpenAPI document."""
    document: dict[str, Any] = (await api.client.get("/openapi.json")).json()
    return document
