"""The middleware around every route.

ExchangeMiddleware   opens the exchange of a request, and writes the headers that every reply has
FastRoutes        serves the busiest routes from a table, without FastAPI's own dispatch

Plain ASGI on purpose: Starlette's BaseHTTPMiddleware hides client disconnects from streams. Errors of our own end here
too: Starlette's handler for them raises them again, and then the server that runs the app logs their text, which may
quote what a client sent.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contract.errors import INTERNAL_ERROR, ApiError, without_text
from contract.limits import REPLY_PIECE_BYTES, WRITE_LEAST_BYTES_PER_S, WRITE_S
from contract.telemetry import NO_MODEL, REFUSALS, REQUEST_DURATION, REQUEST_TIME, Outcome
from contract.tracing import TRACE_HEADERS, Stage, StageEntry
from contract.wires import ANTHROPIC, ANTHROPIC_PATHS, OPENAI, ErrorShape
from deployments.ingress import traces
from deployments.ingress.context import Exchange, Service
from deployments.ingress.front.bodies import ReplyPace, StepTimeout
from deployments.ingress.front.cors import Cors
from deployments.ingress.front.sockets import UPGRADED, SocketSender, serve_socket

log = logging.getLogger(f"parlance.{__name__}")

VITAL = frozenset({"/healthz"})
"""Always answered: a health prober restarts a process that does not reply."""

Row = tuple[Callable[[Request], Awaitable[Any]], Callable[..., Awaitable[Response]], str]
"""The admission of a route, its endpoint, and the argument that takes what was admitted."""


def _with_headers(exchange: Exchange, message: Message) -> list[tuple[bytes, bytes]]:
    """Headers of a reply with those of every reply: ids, where the time went, the rate limit once a key is known."""
    timing = ", ".join(f"{name};dur={seconds * 1000:.1f}" for name, seconds in exchange.parts().items())
    headers = dict.fromkeys(exchange.shape.id_headers, exchange.request_id) | {"server-timing": timing}
    if rate := exchange.rate:
        # The spec's headers, and the draft standard's beside them. A reset is whole seconds to go, never a moment.
        headers |= {
            "x-ratelimit-limit": str(rate.limit),
            "x-ratelimit-remaining": str(rate.remaining),
            "x-ratelimit-reset": str(rate.reset_s),
            "ratelimit-policy": f'"default";q={rate.limit};w={rate.window_s}',
            "ratelimit": f'"default";r={rate.remaining};t={rate.reset_s}',
        }
    if exchange.names and exchange.names.span:
        headers |= exchange.names.span.headers()
    own = list(message.get("headers", ()))
    added = ((name.encode("ascii"), value.encode("ascii")) for name, value in headers.items())
    present = {name for name, _ in own}
    return own + [header for header in added if header[0] not in present]


def refusal(exchange: Exchange, error: ApiError) -> JSONResponse:
    """The reply of `error`, in the shape of this path's wire. Counts what a limit has refused."""
    exchange.fault = error.fault
    exchange.service.concurrency.count(error)
    return JSONResponse(exchange.shape.body(error, exchange.request_id), error.fault.status, error.headers())


def _outcome(exchange: Exchange, otherwise: Outcome) -> Outcome:
    """Returns the outcome of a request or websocket, `otherwise` where it has no fault. Counts a refusal."""
    if not (fault := exchange.fault):
        return otherwise
    exchange.service.metrics.totals[REFUSALS, (exchange.model.id if exchange.model else NO_MODEL, fault.code)] += 1
    return Outcome.REFUSED if fault.status < 500 else Outcome.FAILED


def _count_request(exchange: Exchange, *, is_whole: bool) -> Outcome:
    """Counts a request that is over. `is_whole` says whether the last byte of its reply went out."""
    metrics, model = exchange.service.metrics, exchange.model.id if exchange.model else NO_MODEL
    outcome = _outcome(exchange, Outcome.OK if is_whole else Outcome.LEFT)
    parts = exchange.parts()
    for part, seconds in parts.items():
        metrics.totals[REQUEST_TIME, (model, part)] += seconds
    metrics.observe(REQUEST_DURATION, (exchange.scope or NO_MODEL, model, outcome), sum(parts.values()))
    return outcome


class ExchangeMiddleware:
    """Opens the exchange of each HTTP request and writes its headers on whatever answers."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service
        self._cors = Cors(service.allowed_origins) if service.allowed_origins else None
        self._traces_each = service.observation.is_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        exchange = self._opened(scope, ANTHROPIC if ANTHROPIC_PATHS.fullmatch(scope["path"]) else OPENAI)
        reply = _ReplySender(scope, exchange, send, self._cors)
        try:
            await self._answer(scope, receive, reply, exchange)
        finally:
            self._remember(exchange, scope, reply.status, _count_request(exchange, is_whole=reply.has_ended))

    def _opened(self, scope: Scope, shape: ErrorShape) -> Exchange:
        exchange = scope["exchange"] = Exchange(self.service, shape)
        if self.service.console:
            exchange.timings.stages = [StageEntry(Stage.ADMISSION, exchange.started_s)]
        named = [header for header in scope["headers"] if header[0] in TRACE_HEADERS]
        if named or self._traces_each:
            traces.begin(exchange, scope, named)
        return exchange

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves what is no request: a websocket, or the start of the app."""
        if scope["type"] != "websocket":
            await self.app(scope, receive, send)
            return
        scope["method"] = "GET"  # as its upgrade comes
        exchange = self._opened(scope, OPENAI)
        reply = SocketSender(exchange, send, _with_headers)
        try:
            await serve_socket(self.app, exchange, reply, refusal, scope, receive)
        finally:
            # Its client decides how long it lasts, so it is not among the times of requests.
            outcome = _outcome(exchange, Outcome.OK if reply.status == UPGRADED else Outcome.LEFT)
            self._remember(exchange, scope, reply.status, outcome)

    def _remember(self, exchange: Exchange, scope: Scope, status: int, outcome: Outcome) -> None:
        if self._traces_each:
            traces.end(exchange, scope, status, outcome)
        if self.service.console:
            traces.remember(exchange, scope, status, outcome)

    async def _answer(self, scope: Scope, receive: Receive, reply: _ReplySender, exchange: Exchange) -> None:
        try:
            exchange.resources.enter_context(self.service.concurrency.request(is_vital=scope["path"] in VITAL))
        except ApiError as error:
            await refusal(exchange, error)(scope, receive, reply)
            return
        try:
            preflight = self._cors.preflight(scope) if self._cors else None
            with exchange.resources:
                await (preflight or self.app)(scope, receive, reply)
        except StepTimeout:
            log.info("dropped request %s, because its client reads too slowly", exchange.request_id)
            raise BrokenOff from None
        except Exception as error:
            log.error("request %s failed with an internal error: %s", exchange.request_id, without_text(error))
            exchange.fault = INTERNAL_ERROR().fault
            if reply.status:
                # All that is left is to break the connection off, so that half a reply does not look whole.
                raise BrokenOff from None
            await refusal(exchange, INTERNAL_ERROR())(scope, receive, reply)


class FastRoutes:
    """Serves the routes that need of FastAPI nothing but an admission, without its way to them, which costs as much.

    It calls their admission itself (`app.fast_routes` makes the table).
    Whatever the table lacks takes the long way: other methods and paths, and routes with parameters. Both ways give the
    same answers (`tests/api/test_matrix.py`).

    Args:
        app: the long way.
        table: rows by method and path.
    """

    def __init__(self, app: ASGIApp, table: Mapping[tuple[str, str], Row]) -> None:
        self._app, self._table = app, table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        is_plain = scope["type"] == "http" and not scope.get("root_path")
        row = self._table.get((scope["method"], scope["path"])) if is_plain else None
        if row is None:
            await self._app(scope, receive, send)
            return
        admission, endpoint, name = row
        scope["short_way"] = True
        request = Request(scope, receive, send)
        try:
            response = await endpoint(**{name: await admission(request)})
        except ApiError as error:
            response = refusal(scope["exchange"], error)
        await response(scope, receive, send)


class _ReplySender:
    """Sends whatever answers one request: with the headers of every reply, in pieces, at the pace of its client.

    Attributes:
        status: 0 until it has gone out.
        has_ended: whether the last byte has.
    """

    __slots__ = ("_cors", "_exchange", "_pace", "_scope", "_send", "has_ended", "status")

    def __init__(self, scope: Scope, exchange: Exchange, send: Send, cors: Cors | None) -> None:
        self.status, self.has_ended = 0, False
        self._scope, self._exchange, self._send, self._cors = scope, exchange, send, cors
        self._pace = ReplyPace(WRITE_S, WRITE_LEAST_BYTES_PER_S)

    async def __call__(self, message: Message) -> None:
        """Sends a part of the reply. Raises StepTimeout where the client reads too slowly."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._add_headers(message)
        length = len(message.get("body", b""))
        if length <= REPLY_PIECE_BYTES:
            await self._pace.step(length, self._send(message))
        else:
            with self._exchange.replying(length):
                for piece in in_pieces(message):
                    await self._pace.step(len(piece["body"]), self._send(piece))
        self.has_ended = message["type"] == "http.response.body" and not message.get("more_body", False)

    def _add_headers(self, message: Message) -> None:
        message["headers"] = _with_headers(self._exchange, message)
        if self._cors:
            self._cors.add_headers(self._scope, MutableHeaders(scope=message))


def in_pieces(message: Message) -> Iterator[Message]:
    """A part of a reply in parts of REPLY_PIECE_BYTES: each has a time of its own, and few bytes lie in buffers."""
    body, is_last = message["body"], not message.get("more_body", False)
    for start in range(0, len(body), REPLY_PIECE_BYTES):
        end = start + REPLY_PIECE_BYTES
        yield {**message, "body": body[start:end], "more_body": not (is_last and end >= len(body))}


class BrokenOff(Exception):
    """A reply that had begun cannot be ended. What happened is in the log already."""
