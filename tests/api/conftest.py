"""The whole HTTP contract without Ray: the real app and state, over engines that run in this process."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import Connection, select
from starlette.middleware import Middleware

import models
from autoscaling import views
from autoscaling.engine import CallContext, Timings
from contract.access import Scope
from contract.catalog import Model
from contract.errors import UPSTREAM_ERROR, ApiError
from deployments.ingress.app import build_app
from deployments.ingress.context import Service
from state import State, open_state
from state.accounts import api_keys, keys, organisations
from state.accounts.authentication import PEPPER
from state.database.tables import usage_lines
from tests.catalogs import behaving, chat

MESSAGE = {"role": "user", "content": "say hello"}


class LocalEngine:
    """The gate's interface straight over an adapter: always warm, never busy; its faults become 502 as on Ray.

    Attributes:
        callers: the owner of each call.
        given: items of streams.
    """

    def __init__(self, model: Model) -> None:
        self.adapter = models.load(model)
        self.warmed = 0
        self.callers: list[str] = []
        self.given = 0

    async def call(self, method: Any, job: Any, *, context: CallContext) -> Any:
        self.callers.append(context.owner)
        try:
            with at_work(context.timings):
                return await getattr(self.adapter, method.__name__)(job)
        except ApiError:
            raise
        except Exception:
            raise UPSTREAM_ERROR() from None

    async def stream(self, method: Any, job: Any, *, context: CallContext) -> AsyncGenerator[Any, None]:
        self.callers.append(context.owner)
        items = getattr(self.adapter, method.__name__)(job)
        try:
            with at_work(context.timings) as count:
                async for item in items:
                    count()
                    self.given += 1
                    yield item
        except ApiError:
            raise
        except Exception:
            raise UPSTREAM_ERROR() from None
        finally:
            await items.aclose()

    def running(self) -> int:
        return 1

    def free(self) -> int:
        return 1

    def is_failing(self) -> bool:
        return False

    def warm(self) -> None:
        self.warmed += 1

    async def ready(self, within_s: float, *, timings: Timings) -> None:
        return None


@contextmanager
def at_work(timings: Timings) -> Iterator[Callable[[], None]]:
    """A call has gone out to a replica, as the router says it. Gives what brings the times up to date."""
    with timings.measured() as count:
        sent = views.SENT.get()
        assert sent is not None
        sent()
        yield count


@dataclass
class Api:
    """A client of the app with one organisation `acme` on plan `pro`."""

    service: Service
    client: httpx.AsyncClient
    everything: str = ""

    @property
    def state(self) -> State:
        return self.service.state

    async def organisation(self, name: str, plan: str = "pro") -> None:
        """A new organisation without limits."""
        now_s = int(time.time())
        await self.state.database.run(lambda c: organisations.create(c, name, plan, (), now_s))

    async def key(self, *scopes: Scope, org: str = "acme", user: str | None = None) -> str:
        """A new key, of a user if one is named."""
        key, pepper, now_s = keys.mint(), self.state.secrets.derive(PEPPER), int(time.time())

        def store(connection: Connection) -> None:
            org_id = organisations.find(connection, org).id
            user_id = organisations.ensure_user(connection, org_id, user, now_s) if user else None
            api_keys.store(
                connection,
                key,
                pepper,
                org_id=org_id,
                user_id=user_id,
                scopes=frozenset(scopes),
                label=None,
                now_s=now_s,
            )

        await self.state.database.run(store)
        return key.text

    async def limit(self, micro_eur: int, org: str = "acme", user: str | None = None) -> None:
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

    async def send(self, method: str, path: str, key: str | None = None, **request: Any) -> httpx.Response:
        """One request with the all-scopes key, unless another is given."""
        headers = {"Authorization": f"Bearer {self.everything if key is None else key}"} | request.pop("headers", {})
        return await self.client.request(method, path, headers=headers, **request)

    async def chat(self, text: str = "say hello", key: str | None = None, **fields: Any) -> httpx.Response:
        """One chat completion by the obedient engine."""
        body = {"model": "obedient", "messages": [{"role": "user", "content": text}], **fields}
        return await self.send("POST", "/v1/chat/completions", key, json=body)


@cache
def routed() -> FastAPI:
    """The app without a service: to read the routes takes longer than most tests."""
    return build_app(cast(Service, None))


def app_over(service: Service) -> FastAPI:
    """The app over a service, with the routes that are read already."""
    app = copy(routed())
    app.user_middleware = [
        Middleware(one.cls, *one.args, **{**one.kwargs, "service": service}) for one in app.user_middleware
    ]
    return app


@pytest.fixture
async def state(tmp_path: Path, migrated: Path) -> AsyncIterator[State]:
    shutil.copy(migrated, tmp_path)
    opened = await open_state(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
async def api(state: State) -> AsyncIterator[Api]:
    catalog = behaving(obedient=chat("obedient"))
    service = Service(catalog, {m.deployment: LocalEngine(m) for m in catalog.deployed()}, state)
    transport = httpx.ASGITransport(app_over(service), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        api = Api(service, client)
        await api.organisation("acme")
        api.everything = await api.key(*Scope)
        service.drafts.pause_s = 0.001
        yield api
        await service.drafts.close()
