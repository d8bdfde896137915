"""The checks that come before a route, in this order: length, key, scope, rate, body.

A route says what it needs by a dependency: `Depends(admit(Scope.CHAT))`, or `Depends(admit(None))` where any valid key
will do. The dependency hangs on the route itself, never on a path, so no trick with Host or path can pass it; a route
without one stops the start (`app.check_routes`). Routes without parameters are admitted by `middleware.FastRoutes`, the
others by FastAPI.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, TypeVar

from fastapi import Depends
from pydantic import BaseModel
from starlette.requests import HTTPConnection, Request

from contract.access import Caller, Scope
from contract.body import parse
from contract.errors import (
    AMBIGUOUS_API_KEY,
    EXPIRED_API_KEY,
    INVALID_API_KEY,
    MISSING_API_KEY,
    RATE_LIMIT_EXCEEDED,
    REQUEST_TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    ApiError,
)
from contract.limits import JSON_BODY_BYTES, JSON_VALUES
from deployments.ingress.context import Exchange, RequestContext, exchange_of
from deployments.ingress.front.bodies import read_body
from deployments.ingress.front.concurrency import AnonymousClient
from deployments.ingress.front.origins import client_network
from state.idempotency import HEADER
from state.rates import RateVerdict

B = TypeVar("B", bound=BaseModel)
R = TypeVar("R")

MARK = "__parlance_scope__"
"""Attribute that says what an admission dependency demands; the authorization matrix is made from it."""
API_KEY_HEADER = "x-api-key"
"""Header in which Anthropic's clients put the key. Only routes that say so read it."""


@dataclass(slots=True)
class Admitted:
    """A request with key, scope and rate in order.

    Attributes:
        max_values: keys and values that its body may hold.
        body_bytes: length of the body, once it is read. A slash counts as one byte, also where JSON escapes it.
        body_sha256: of the body as it came, if an `Idempotency-Key` came with it.
    """

    request: Request
    context: RequestContext
    max_body_bytes: int
    max_values: int = JSON_VALUES
    body_bytes: int = 0
    body_sha256: str = ""

    async def body(self, model: type[B], *, optional: bool = False) -> B:
        """The JSON body as `model`; where it is `optional`, no body is an empty object.

        Raises UNSUPPORTED_MEDIA_TYPE, INVALID_JSON, INVALID_REQUEST, and what `read_body` raises.
        """
        refuse_other_media(self.request)
        exchange = exchange_of(self.request.scope)
        hold = exchange.hold()
        raw = await read_body(self.request, hold, self.max_body_bytes)
        self.body_bytes = len(raw) - raw.count(b"\\/")
        if HEADER in self.request.headers:
            self.body_sha256 = sha256(raw).hexdigest()
        async with exchange.service.concurrency.reading_turn(self.context.caller, len(raw)):
            return parse(model, raw if raw or not optional else b"{}", self.max_values, hold)


def admit(
    scope: Scope | None,
    max_body_bytes: int = JSON_BODY_BYTES,
    max_values: int = JSON_VALUES,
    *,
    takes_api_key_header: bool = False,
) -> Callable[[Request], Awaitable[Admitted]]:
    """A dependency that lets a request in, or raises the first error of the order. `scope=None`: any valid key.

    `takes_api_key_header`: the key may come as `x-api-key` too.
    From then on the request counts among those of its key, until it is over.
    """

    async def admission(request: Request) -> Admitted:
        exchange = exchange_of(request.scope)
        exchange.scope = scope
        refuse_long_body(request, max_body_bytes)
        authorization = _either_header(request) if takes_api_key_header else request.headers.get("authorization")
        context = await entered(exchange, await authenticated(request, authorization))
        return Admitted(request, context, max_body_bytes, max_values)

    setattr(admission, MARK, scope)
    return admission


any_key = admit(None)
AnyKey = Annotated[Admitted, Depends(any_key)]


async def entered(exchange: Exchange, caller: Caller) -> RequestContext:
    """The context of a request of `caller`. Raises MISSING_SCOPE, RATE_LIMIT_EXCEEDED, TOO_MUCH_AT_ONCE."""
    exchange.caller = caller
    # Counted before the scope is looked at: requests that lack a scope use up the rate too.
    rate = exchange.rate = await exchange.service.state.rates.hit(caller)
    if exchange.scope is not None:
        caller.require(exchange.scope)
    refuse_beyond(rate)
    exchange.begin_call(caller)
    return RequestContext(exchange, caller, exchange.timings)


async def authenticated(request: HTTPConnection, authorization: str | None) -> Caller:
    """Returns the holder of the key. Raises as `authenticate`, and RATE_LIMIT_EXCEEDED after too many wrong keys."""
    accounts = exchange_of(request.scope).service.state.accounts
    return await counting_wrong_keys(request, accounts.authenticate(authorization))


async def counting_wrong_keys(request: HTTPConnection, look_up: Awaitable[R]) -> R:
    """Returns the result of `look_up` for a key.

    Only keys that open nothing are counted: a right one opens, whatever else comes from its network.
    """
    exchange = exchange_of(request.scope)
    try:
        return await look_up
    except ApiError as error:
        if error.fault in (INVALID_API_KEY, EXPIRED_API_KEY):
            rate = await exchange.service.state.rates.hit_wrong_key(client_network(request))
            if not rate.allowed:
                exchange.rate = rate
                refuse_beyond(rate)
        raise


def _either_header(request: Request) -> str:
    """Returns `Authorization`, also for an `x-api-key`. Raises MISSING_API_KEY, AMBIGUOUS_API_KEY."""
    authorization, key = request.headers.get("authorization"), request.headers.get(API_KEY_HEADER)
    if not authorization and not key:
        raise MISSING_API_KEY("send your API key as `x-api-key: <API_KEY>` or `Authorization: Bearer <API_KEY>`")
    if not key:
        return authorization or ""
    if authorization and authorization.partition(" ")[2].strip(" ") != key:
        raise AMBIGUOUS_API_KEY()
    return authorization or f"Bearer {key}"


async def admit_anyone(request: Request, max_body_bytes: int) -> AnonymousClient:
    """First checks of routes without a key: length, and a rate for each network that clients are in.

    From then on the request counts among those of that network, until it is over. Raises REQUEST_TOO_LARGE,
    RATE_LIMIT_EXCEEDED, TOO_MUCH_AT_ONCE.
    """
    exchange = exchange_of(request.scope)
    refuse_long_body(request, max_body_bytes)
    client = AnonymousClient(client_network(request))
    rate = exchange.rate = await exchange.service.state.rates.hit_address(client.network)
    refuse_beyond(rate)
    exchange.begin_call(client)
    return client


def refuse_long_body(request: Request, max_bytes: int) -> None:
    """Looks at the declared length only. Raises REQUEST_TOO_LARGE."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise REQUEST_TOO_LARGE(f"the body is longer than {max_bytes} bytes")


def refuse_other_media(request: Request, takes_form: bool = False) -> None:
    """Raises UNSUPPORTED_MEDIA_TYPE for what would otherwise be called broken JSON, or a broken form."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UNSUPPORTED_MEDIA_TYPE(f"the body has `Content-Encoding: {encoding[:32]}`; send it uncompressed")
    if not takes_form and request.headers.get("content-type", "").strip().lower().startswith("multipart/"):
        raise UNSUPPORTED_MEDIA_TYPE("the body is a multipart form; this path accepts only JSON")


def require_media(request: Request, wanted: str, otherwise: str = "", hint: str = "") -> None:
    """Raises UNSUPPORTED_MEDIA_TYPE unless the body has the type `wanted`; one without a type is `otherwise`."""
    kind = request.headers.get("content-type", otherwise)
    if kind.partition(";")[0].strip().lower() != wanted:
        raise UNSUPPORTED_MEDIA_TYPE(f"the body has the type `{kind[:60]}`; send `content-type: {wanted}`{hint}")


def refuse_beyond(rate: RateVerdict) -> None:
    """Raises RATE_LIMIT_EXCEEDED."""
    if not rate.allowed:
        raise RATE_LIMIT_EXCEEDED(
            f"you have sent more than {rate.limit} requests in a minute; send the next in {rate.reset_s} s",
            retry_after_s=rate.reset_s,
        )
