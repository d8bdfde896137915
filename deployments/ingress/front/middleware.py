"""The middleware around every route: opens the trace of a request, and writes the headers that every reply has.

Plain ASGI on purpose: Starlette's BaseHTTPMiddleware hides client disconnects from streams. Errors of our own end here
too: Starlette's handler for them raises them again, and then the server that runs the app logs their text, which may
quote what a client sent.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autoscaling.engine import Timings
from contract.body import Hold
from contract.errors import INTERNAL_ERROR, ApiError, without_text
from contract.limits import REPLY_PIECE_BYTES, WRITE_LEAST_BYTES_PER_S, WRITE_S
from contract.wires import OPENAI, ErrorShape, error_shape
from deployments.ingress.context import Service
from deployments.ingress.front.bodies import ReplyPace, StepTimeout
from deployments.ingress.front.concurrency import Holder
from deployments.ingress.front.cors import Cors
from state.rates import RateVerdict

log = logging.getLogger(f"parlance.{__name__}")

VITAL = frozenset({"/healthz"})
"""Always answered: a health prober restarts a process that does not reply."""


@dataclass(slots=True)
class Trace:
    """One request from the first byte to the last.

    Attributes:
        shape: how the wire of this path tells errors.
        request_id: ours, never the client's.
        started_s: `time.perf_counter()` when the request came.
        timings: filled by the gate.
        rate: set by admission.
        resources: what the request holds of the process until it is over.
        holder: on whose limits these count, set by admission.
    """

    service: Service
    shape: ErrorShape = OPENAI
    request_id: str = field(default_factory=lambda: f"req_{secrets.token_hex(16)}")
    started_s: float = field(default_factory=time.perf_counter)
    timings: Timings = field(default_factory=Timings)
    rate: RateVerdict | None = None
    resources: ExitStack = field(default_factory=ExitStack)
    holder: Holder | None = None

    def headers(self) -> Iterator[tuple[bytes, bytes]]:
        """Headers of every reply: the id, where the time went, and the rate limit once a key is known."""
        headers = dict.fromkeys(self.shape.id_headers, self.request_id) | {"server-timing": self._server_timing()}
        if self.rate:
            headers |= _rate_headers(self.rate)
        return ((name.encode("ascii"), value.encode("ascii")) for name, value in headers.items())

    def refusal(self, error: ApiError) -> JSONResponse:
        """The reply that tells `error`, in the shape of this path's wire."""
        return JSONResponse(self.shape.body(error, self.request_id), error.fault.status, error.headers())

    def begin_call(self, holder: Holder) -> None:
        """Counts the request among those of `holder` until it is over. Raises TOO_MUCH_AT_ONCE."""
        self.resources.enter_context(self.service.concurrency.call(holder))
        self.holder = holder

    def hold(self) -> Hold:
        """Takes bytes of the holder's limits until the request is over. Raises TOO_MUCH_AT_ONCE, OVERLOADED."""
        assert self.holder
        return self.resources.enter_context(self.service.concurrency.body(self.holder))

    def replying(self, byte_count: int) -> AbstractContextManager[None]:
        """Counts bytes of the reply that are in memory."""
        return self.service.concurrency.reply(self.holder, byte_count) if self.holder else nullcontext()

    def _server_timing(self) -> str:
        spent = self.timings
        gateway = max(0.0, time.perf_counter() - self.started_s - spent.queue - spent.load - spent.engine)
        parts = {"gateway": gateway, "queue": spent.queue, "load": spent.load, "engine": spent.engine}
        return ", ".join(f"{name};dur={seconds * 1000:.1f}" for name, seconds in parts.items())


def _rate_headers(rate: RateVerdict) -> dict[str, str]:
    """The spec's headers, and the draft standard's beside them. A reset is whole seconds to go, never a moment."""
    return {
        "x-ratelimit-limit": str(rate.limit),
        "x-ratelimit-remaining": str(rate.remaining),
        "x-ratelimit-reset": str(rate.reset_s),
        "ratelimit-policy": f'"default";q={rate.limit};w={rate.window_s}',
        "ratelimit": f'"default";r={rate.remaining};t={rate.reset_s}',
    }


def trace_of(request: Request) -> Trace:
    """The trace that the middleware opened for this request."""
    trace: Trace = request.scope["trace"]
    return trace


class TraceMiddleware:
    """Opens the trace of each HTTP request and writes its headers on whatever answers."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service
        self._cors = Cors(service.allowed_origins) if service.allowed_origins else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        trace = Trace(self.service, error_shape(scope["path"]))
        scope["trace"] = trace
        reply = _ReplySender(scope, trace, send, self._cors)
        try:
            trace.resources.enter_context(self.service.concurrency.request(is_vital=scope["path"] in VITAL))
        except ApiError as error:
            self.service.concurrency.count(error)
            await trace.refusal(error)(scope, receive, reply)
            return
        try:
            preflight = self._cors.preflight(scope) if self._cors else None
            with trace.resources:
                await (preflight or self.app)(scope, receive, reply)
        except StepTimeout:
            log.info("dropped request %s, because its client reads too slowly", trace.request_id)
            raise BrokenOff from None
        except Exception as error:
            log.error("request %s failed with an internal error: %s", trace.request_id, without_text(error))
            if reply.has_begun:
                # All that is left is to break the connection off, so that half a reply does not look whole.
                raise BrokenOff from None
            await trace.refusal(INTERNAL_ERROR())(scope, receive, reply)


class _ReplySender:
    """Sends whatever answers one request: with the headers of every reply, in pieces, at the pace of its client.

    Attributes:
        has_begun: whether the status has gone out.
    """

    __slots__ = ("_cors", "_pace", "_scope", "_send", "_trace", "has_begun")

    def __init__(self, scope: Scope, trace: Trace, send: Send, cors: Cors | None) -> None:
        self.has_begun = False
        self._scope, self._trace, self._send, self._cors = scope, trace, send, cors
        self._pace = ReplyPace(WRITE_S, WRITE_LEAST_BYTES_PER_S)

    async def __call__(self, message: Message) -> None:
        """Sends a part of the reply. Raises StepTimeout where the client reads too slowly."""
        if message["type"] == "http.response.start":
            self.has_begun = True
            self._add_headers(message)
        length = len(message.get("body", b""))
        try:
            if length <= REPLY_PIECE_BYTES:
                await self._pace.step(length, self._send(message))
                return
            with self._trace.replying(length):
                for piece in in_pieces(message):
                    await self._pace.step(len(piece["body"]), self._send(piece))
        except TimeoutError:
            # Another limit of time than the client's own is over.
            raise BrokenOff from None

    def _add_headers(self, message: Message) -> None:
        headers = message["headers"] = list(message.get("headers", ()))
        present = {name for name, _ in headers}
        headers += [header for header in self._trace.headers() if header[0] not in present]
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
