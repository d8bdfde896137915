"""An engine that answers at once, behind everything that `benchmarks.gateway` compares.

build       the whole graph of this project over it: HAProxy, ingress, gate, one engine replica
bare        two hops of Ray Serve and nothing else: an ingress that hands the JSON on, one engine replica
answer      the same answers from a bare ASGI app, which is also what the peer's proxy is put in front of
"""

# No postponed annotations: Serve reads the types of `args` and FastAPI those of routes.

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from ray import serve
from ray.serve import Application
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from contract.catalog import Catalog
from deployments.ingress import IngressArgs
from graph import wire
from tests.catalogs import chat

CHUNKS = 50
MODEL = "obedient"
REPLY: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": MODEL,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
}


class Args(BaseModel):
    """`args:` of the config file. `profile` is what the launcher looks for; nothing of it runs here."""

    profile: str


def build(args: Args) -> Application:
    """The real wiring over the obedient engine of the tests."""
    instant = chat(MODEL, max_ongoing_requests=200, max_queued=1000)
    return wire(Catalog(profile="embedded", chat={MODEL: instant}), IngressArgs())


def chunk(index: int) -> bytes:
    """One event of a stream."""
    delta = {"index": 0, "delta": {"role": "assistant", "content": f"{index} "}, "finish_reason": None}
    event = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [delta]}
    return f"data: {json.dumps(event)}\n\n".encode()


@serve.deployment(max_ongoing_requests=200, ray_actor_options={"num_cpus": 0.05})
class BareEngine:
    """Answers whatever it is asked."""

    async def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """The whole answer."""
        return REPLY

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[bytes]:
        """The answer in pieces."""
        for index in range(CHUNKS):
            yield chunk(index)
        yield b"data: [DONE]\n\n"


bare_app = FastAPI()


@serve.deployment(max_ongoing_requests=2000, ray_actor_options={"num_cpus": 0.05})
@serve.ingress(bare_app)
class BareIngress:
    """Checks nothing, keeps nothing."""

    def __init__(self, engine: DeploymentHandle) -> None:
        self.engine = engine
        self.streaming = engine.options(stream=True)

    @bare_app.post("/v1/chat/completions")
    async def complete(self, request: Request) -> Response:
        """Hands the body on."""
        body = await request.json()
        if body.get("stream"):
            return StreamingResponse(self.streaming.stream.remote(body), media_type="text/event-stream")
        return JSONResponse(await self.engine.complete.remote(body))


def bare(args: Args) -> Application:
    """Two hops."""
    return BareIngress.bind(BareEngine.bind())


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """A bare ASGI app with the same answers."""
    if scope["type"] != "http":
        return
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message.get("more_body"):
            break
    streams = b'"stream": true' in body or b'"stream":true' in body
    kind = b"text/event-stream" if streams else b"application/json"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    for index in range(CHUNKS if streams else 0):
        await send({"type": "http.response.body", "body": chunk(index), "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n" if streams else json.dumps(REPLY).encode()})
