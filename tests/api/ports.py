"""An app at a port of loopback, bodies as in a replica of Serve."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ray.serve._private import http_util
from ray.serve._private.direct_ingress_http_util import ASGIDIReceiveProxy
from starlette.types import ASGIApp, Receive, Scope, Send

from autoscaling.ray_internals.replica import bound_body_queue
from autoscaling.ray_internals.sockets import bound_connections
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
async def at_port(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """Serves `app` at this port of loopback or one of its own, and gives its address."""
    bound_body_queue()
    bound_connections()
    uvicorn = http_util.uvicorn
    server = uvicorn.Server(uvicorn.Config(as_in_serve(app), port=port, lifespan="off", log_level="error"))
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
