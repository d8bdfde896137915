"""POST /mcp/mcp and POST /mcp/docs/mcp (docs/api.md#post-mcpmcp)."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from contract.access import Scope
from contract.errors import NOT_ACCEPTABLE
from contract.limits import KEYLESS_BODY_BYTES, MCP_BODY_BYTES
from contract.mcp import RpcMessage, RpcReply
from deployments.ingress.context import exchange_of
from deployments.ingress.front.admission import Admitted, admit, admit_anyone, refuse_other_media, require_media
from deployments.ingress.front.bodies import read_body
from deployments.ingress.front.concurrency import Holder
from deployments.ingress.front.origins import refuse_foreign_pages
from deployments.ingress.mcp.tools import ACCOUNT_TOOLS, DOCS_TOOLS, Toolbox
from deployments.ingress.wire.openapi import documented_messages

C = TypeVar("C")

router = APIRouter(tags=["mcp"])
open_router = APIRouter(tags=["mcp"])
"""The documentation is public."""


@router.post("/mcp/mcp", openapi_extra=documented_messages(RpcMessage, RpcReply))
async def use_account_tools(admitted: Annotated[Admitted, Depends(admit(Scope.MCP, MCP_BODY_BYTES))]) -> Response:
    """Tools `chat`, `search`, `image` and `video` for clients of the Model Context Protocol."""
    context = admitted.context
    return await _answer(admitted.request, context.caller, admitted.max_body_bytes, ACCOUNT_TOOLS, context)


@open_router.post("/mcp/docs/mcp", openapi_extra=documented_messages(RpcMessage, RpcReply, keyed=False))
async def use_docs_tools(request: Request) -> Response:
    """Tools `search_docs` and `read_doc` for clients of the Model Context Protocol. No key is needed."""
    client = await admit_anyone(request, KEYLESS_BODY_BYTES)
    return await _answer(request, client, KEYLESS_BODY_BYTES, DOCS_TOOLS, None)


async def _answer(request: Request, holder: Holder, max_body_bytes: int, toolbox: Toolbox[C], context: C) -> Response:
    refuse_foreign_pages(request)
    accepts_stream = _accepts_stream(request)
    refuse_other_media(request)
    require_media(request, "application/json", otherwise="application/json")  # as on every route
    exchange = exchange_of(request.scope)
    hold = exchange.hold()
    body = await read_body(request, hold, max_body_bytes)
    # In a thread, because the first message loads the SDK.
    await asyncio.to_thread(import_module, "deployments.ingress.mcp.exchange")
    from deployments.ingress.mcp.exchange import answer

    async with exchange.service.concurrency.reading_turn(holder, len(body)):
        return answer(request, body, accepts_stream, toolbox, context, hold)


def _accepts_stream(request: Request) -> bool:
    """Says if the client takes events as well. Raises NOT_ACCEPTABLE if it does not even take JSON."""
    accept = ",".join(request.headers.getlist("accept")) or "*/*"
    kinds = {kind.partition(";")[0].strip().lower() for kind in accept.split(",")}
    if not kinds & {"application/json", "application/*", "*/*"}:
        raise NOT_ACCEPTABLE(f"the request accepts `{accept[:60]}`; accept `application/json`, the type of all replies")
    return bool(kinds & {"text/event-stream", "text/*", "*/*"})
