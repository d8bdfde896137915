"""Servers over the instant engine, one for each system of `benchmarks.speed.gateway` that is ours.

build       the whole graph of this project: HAProxy, ingress, gate, one engine replica
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
from ray.serve import Application, Deployment
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from benchmarks.speed.instant_engine import COMPLETION, EVENTS, MODEL, event
from contract.catalog import Catalog, ChatModel, Serving
from deployments.ingress.deployment import IngressArgs
from graph import wire

DONE = b"data: [DONE]\n\n"


class Args(BaseModel):
    """`args:` of the config file. `profile` is what the launcher looks for; nothing of it runs here."""

    profile: str


def build(args: Args) -> Application:
    """The real wiring over a catalogue of one chat model. A token costs 1 micro-EUR in, 2 out."""
    serving: dict[str, Any] = {"deployment": {"ray_actor_options": {"num_cpus": 0.05}}, "load_s": 2, "max_queued": 1000}
    chat = ChatModel(
        id=MODEL,
        owned_by="benchmarks",
        tier="default",
        context_window=1000,
        price={"input_tokens": 1_000_000, "output_tokens": 2_000_000},
        serving=Serving(
            adapter="benchmarks.speed.instant_engine:InstantChat", runtime=MODEL, max_ongoing_requests=200, **serving
        ),
    )
    catalog = Catalog(profile="embedded", chat={MODEL: chat})
    return wire(catalog, IngressArgs())


@serve.deployment(max_ongoing_requests=200, ray_actor_options={"num_cpus": 0.05})
class BareEngine:
    async def complete(self, body: dict[str, Any]) -> Any:
        return COMPLETION

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[bytes]:
        for index in range(EVENTS):
            yield event(index)
        yield DONE


bare_app = FastAPI()


@serve.deployment(max_ongoing_requests=2000, ray_actor_options={"num_cpus": 0.05})
@serve.ingress(bare_app)
class BareIngress:
    def __init__(self, engine: DeploymentHandle) -> None:
        self.engine = engine
        self.streaming = engine.options(stream=True)

    @bare_app.post("/v1/chat/completions")
    async def complete(self, request: Request) -> Response:
        body = await request.json()
        if body.get("stream"):
            return StreamingResponse(self.streaming.stream.remote(body), media_type="text/event-stream")
        return JSONResponse(await self.engine.complete.remote(body))


def bare(args: Args) -> Application:
    entry: Deployment = BareIngress
    engine: Deployment = BareEngine
    return entry.bind(engine.bind())


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
    for index in range(EVENTS if streams else 0):
        await send({"type": "http.response.body", "body": event(index), "more_body": True})
    await send({"type": "http.response.body", "body": DONE if streams else json.dumps(COMPLETION).encode()})
