"""Serves the app over a socket, bodies as in a replica of Serve: `python -m tests.api.serving HOME [BLOBS_URL]`.

Prints its port and a key with every scope, and ends when its input does.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import uvicorn
from ray.serve._private.direct_ingress_http_util import ASGIDIReceiveProxy
from starlette.types import ASGIApp, Receive, Scope, Send

from autoscaling.ray_internals.replica import bound_body_queue
from contract.access import Scope as KeyScope
from contract.catalog import Catalog
from deployments.ingress.app import build_app
from deployments.ingress.context import Service
from state import State, open_state
from tests.api.conftest import Api, LocalEngine
from tests.catalogs import behaving, chat
from tests.waiting import until


def as_in_serve(app: ASGIApp) -> ASGIApp:
    """`app` behind what Serve puts before it in a replica whose routes run in its own event loop."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        proxy = ASGIDIReceiveProxy(scope, receive, asyncio.get_running_loop())
        fetching = proxy.fetch_until_disconnect_task()
        try:
            await app(scope, proxy, send)
        finally:
            fetching.cancel()

    return served


@asynccontextmanager
async def listening(catalog: Catalog, state: State) -> AsyncIterator[tuple[int, Service]]:
    """The app over `catalog`, whose engines run in this process, at a port of its own on loopback."""
    bound_body_queue()
    service = Service(catalog, {m.deployment: LocalEngine(m) for m in catalog.deployed()}, state)
    config = uvicorn.Config(as_in_serve(build_app(service)), port=0, lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    service.drafts.start()
    yield server.servers[0].sockets[0].getsockname()[1], service
    server.should_exit = True
    await serving
    await service.drafts.close()
    await state.close()


@asynccontextmanager
async def reachable(home: Path, blobs_url: str | None = None) -> AsyncIterator[Api]:
    """The app over engines that behave, at a port; the client knows nothing but the address."""
    state = await open_state(home, blobs_url=blobs_url)
    async with (
        listening(behaving(obedient=chat("obedient")), state) as (port, service),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        api = Api(service, client)
        await api.organisation("acme")
        api.everything = await api.key(*KeyScope)
        yield api


async def main(home: Path, blobs_url: str | None) -> None:
    """Serves until the input ends."""
    async with reachable(home, blobs_url) as api:
        sys.stdout.write(f"{api.client.base_url.port} {api.everything}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:3] or [None]))
