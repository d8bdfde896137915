"""Serves the app over a socket, bodies as in a replica of Serve: `python -m tests.api.serving HOME [BLOBS_URL]`.

Prints its port and a key with every scope, and ends when its input does.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from contract.access import Scope
from contract.catalog import Catalog
from deployments.ingress.app import build_app
from deployments.ingress.console import Console
from deployments.ingress.context import Service
from state import State, open_state
from tests.api.conftest import Api, client_of
from tests.api.engines import local_engines
from tests.api.ports import at_port
from tests.catalogs import behaving, chat


@asynccontextmanager
async def listening(catalog: Catalog, state: State) -> AsyncIterator[tuple[int, Service]]:
    """The app over `catalog`, whose engines run in this process, at a port of its own on loopback."""
    engines = local_engines(catalog)
    service = Service(catalog, engines, state, console=Console(catalog, engines))
    service.drafts.pause_s = 0.01
    async with at_port(build_app(service)) as address:
        service.drafts.start()
        yield int(address.rpartition(":")[2]), service
    await service.drafts.close()
    await service.live.listener.close()
    await state.close()


async def main(home: Path, blobs_url: str | None) -> None:
    """Serves until the input ends."""
    state = await open_state(home, blobs_url=blobs_url)
    async with listening(behaving(obedient=chat("obedient")), state) as (port, service):
        api = Api(service, client_of(service))
        await api.organisation("acme")
        sys.stdout.write(f"{port} {await api.key(*Scope)}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:3] or [None]))
