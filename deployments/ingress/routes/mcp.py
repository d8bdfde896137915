"""POST /mcp/mcp and POST /mcp/docs/mcp (docs/api.md#post-mcpmcp)."""

from __future__ import annotations

import asyncio
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from contract.access import Scope
from contract.errors import NOT_ACCEPTABLE, UNSUPPORTED_MEDIA_TYPE
from contract.limits import KEYLESS_BODY_BYTES, MCP_BODY_BYTES
from contract.mcp import RpcMessage, RpcReply
from deployments.ingress.context import trace_of
from deployments.ingress.front.admission import Admitted, admit, admit_anyone, refuse_other_media
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
    _check_media(request)
    trace = trace_of(request)
    hold = trace.hold()
    body = await read_body(request, hold, max_body_bytes)
    # In a thread, because the first message loads the SDK.
    await asyncio.to_thread(_load)
    from deployments.ingress.mcp.exchange import answer

    async with trace.service.concurrency.reading_turn(holder, len(body)):
        return answer(request, body, accepts_stream, toolbox, context, hold)


def _load() -> None:
    import deployments.ingress.mcp.exchange  # noqa: F401


def _check_media(request: Request) -> None:
    """Raises UNSUPPORTED_MEDIA_TYPE. A body without a type is taken as JSON, as on every route."""
    refuse_other_media(request)
    kind = request.headers.get("content-type", "application/json")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise UNSUPPORTED_MEDIA_TYPE(f"the body has the type `{kind[:60]}`; send `content-type: application/json`")


def _accepts_stream(request: Request) -> bool:
    """Whether the client takes events as well. Raises NOT_ACCEPTABLE if it does not even take JSON."""
    accept = ",".join(request.headers.getlist("accept")) or "*/*"
    kinds = {kind.partition(";")[0].strip().lower() for kind in accept.split(",")}
    if not kinds & {"application/json", "application/*", "*/*"}:
        raise NOT_ACCEPTABLE(f"the request accepts `{accept[:60]}`; accept `application/json`, the type of all replies")
    return bool(kinds & {"text/event-stream", "text/*", "*/*"})
