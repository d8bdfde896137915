"""The console: GET /console/ and its files, /console/events, /console/requests, /console/keys.

The page needs no key: it is the same for all, and shows nothing before it is given one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from contract.console import PARAMETERS, GraphEvent, KeyList, RecordQuery, RequestPage, RequestRecord
from contract.errors import NOT_FOUND, ApiError
from contract.limits import KEYLESS_BODY_BYTES
from deployments.ingress.console import Console
from deployments.ingress.context import Exchange, exchange_of
from deployments.ingress.front.admission import AnyKey, refuse_long_body
from deployments.ingress.front.concurrency import AnonymousClient
from deployments.ingress.front.origins import client_network
from deployments.ingress.wire.events import event_stream
from deployments.ingress.wire.openapi import documented, documented_events
from state.accounts import api_keys
from state.billing.months import iso_s

router = APIRouter(tags=["console"])
open_router = APIRouter(tags=["console"])
"""The page, which needs no key."""

HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "vary": "accept-encoding",
    "x-content-type-options": "nosniff",
}
"""Headers of everything at and below `/console/` that needs no key."""


@router.get("/console/events", openapi_extra=documented_events(GraphEvent))
async def watch(admitted: AnyKey) -> Response:
    """Show the graph as it is, by server-sent events: a `snapshot`, then another one whenever it has changed."""
    context, console = admitted.context, _console(admitted.context.exchange)
    accounts, rates = context.service.state.accounts, context.service.state.rates

    async def events() -> AsyncGenerator[bytes, None]:
        async with (
            rates.stream(context.caller),
            aclosing(console.feed.watch(context.caller, accounts.current)) as source,
        ):
            async for event in source:
                yield event

    return await event_stream(context.exchange, events())


@router.get("/console/requests", openapi_extra=documented(None, RequestPage, parameters=PARAMETERS))
async def list_requests(admitted: AnyKey) -> Response:
    """List the last requests of your organisation, the one that ended last first."""
    console, query = _console(admitted.context.exchange), RecordQuery.read(admitted.request.query_params)
    return JSONResponse(await console.page(admitted.context.caller, query))


@router.get("/console/requests/{request_id}", openapi_extra=documented(None, RequestRecord))
async def show_request(admitted: AnyKey, request_id: str) -> Response:
    """Show where the time of one request went, by its `x-request-id`."""
    record = await _console(admitted.context.exchange).find(admitted.context.caller, request_id)
    if record is None:
        raise NOT_FOUND(
            f"your organisation has no request `{request_id[:100]}` among its last ones", param="request_id"
        )
    return JSONResponse(record.shown())


@router.get("/console/keys", openapi_extra=documented(None, KeyList))
async def list_keys(admitted: AnyKey) -> Response:
    """List the keys of your organisation, without their texts."""
    caller = admitted.context.caller
    _console(admitted.context.exchange)
    rows = await admitted.context.service.state.database.run(
        lambda connection: api_keys.list_keys(connection, caller.org_id)
    )
    reply: KeyList = {
        "data": [
            {
                "key_id": row.public_id,
                "label": row.label,
                "user": row.user,
                "scopes": sorted(row.scopes),
                "created_at": iso_s(row.created_at),
                "expires_at": None if row.expires_at is None else iso_s(row.expires_at),
                "last_used_at": None if row.last_used_at is None else iso_s(row.last_used_at),
            }
            for row in rows
            if row.revoked_at is None and caller.user_id in (None, row.user_id)
        ]
    }
    return JSONResponse(reply)


@open_router.api_route("/console", methods=["GET", "HEAD"], include_in_schema=False)
async def redirect_to_console(request: Request) -> Response:
    """Lead to the page, without a word of the Host header, also behind a proxy that cuts off a path."""
    exchange = exchange_of(request.scope)
    _admit_anyone(exchange, request)
    _console(exchange)
    return RedirectResponse("console/")


@open_router.api_route("/console/{path:path}", methods=["GET", "HEAD"], include_in_schema=False)
async def show_page(request: Request, path: str) -> Response:
    """Show a file of the page. It does not count for the rate: refusing it would cost as much."""
    exchange = exchange_of(request.scope)
    try:
        _admit_anyone(exchange, request)
        return _file(_console(exchange), request, path or "index.html")
    except ApiError as error:
        exchange.fault = error.fault
        headers = {**HEADERS, **error.headers()}
        return JSONResponse(exchange.shape.body(error, exchange.request_id), error.fault.status, headers)


def _file(console: Console, request: Request, name: str) -> Response:
    """A file of the page, or that the client has it already. Raises NOT_FOUND."""
    if (file := console.bundle.get(name)) is None:
        raise NOT_FOUND(f"the console has no file `{name[:100]}`")
    is_packed = _takes_gzip(request.headers.get("accept-encoding", ""))
    headers = {**HEADERS, "etag": f'"{file.digest}{"-gzip" if is_packed else ""}"'}
    known = request.headers.get("if-none-match", "").split(",")
    if headers["etag"] in [tag.strip().removeprefix("W/") for tag in known]:
        return Response(status_code=304, headers=headers)
    if is_packed:
        headers["content-encoding"] = "gzip"
    content = file.packed if is_packed else file.plain
    headers["content-length"] = str(len(content))
    return Response(b"" if request.method == "HEAD" else content, headers=headers, media_type=file.media_type)


def _takes_gzip(accepted: str) -> bool:
    """Says if a client takes gzip by its Accept-Encoding, which refuses a coding by the weight 0."""
    codings = ("".join(item.split()).partition(";q=") for item in accepted.lower().split(","))
    weights = {coding: weight or "1" for coding, _, weight in codings}
    return weights.get("gzip", weights.get("*", "0")).strip("0.") != ""


def _admit_anyone(exchange: Exchange, request: Request) -> None:
    refuse_long_body(request, KEYLESS_BODY_BYTES)
    exchange.begin_call(AnonymousClient(client_network(request)))


def _console(exchange: Exchange) -> Console:
    """The console of this process. Raises NOT_FOUND where there is none."""
    if exchange.service.console is None:
        raise NOT_FOUND("the console is switched off here")
    return exchange.service.console
