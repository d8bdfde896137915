"""Websockets before any route: their traces and headers, admission, and refusals, which are HTTP replies.

A refusal comes before the upgrade, with the status and body that a request would get.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from contract.access import Scope as KeyScope
from contract.body import HOLD_EXTENSION, Hold
from contract.errors import INTERNAL_ERROR, NOT_FOUND, ApiError, without_text
from deployments.ingress.context import Exchange, RequestContext, exchange_of
from deployments.ingress.front.admission import MARK, authenticated, counting_wrong_keys, entered
from deployments.ingress.front.origins import foreign_page, is_own_page
from state.accounts.client_secrets import PREFIX

log = logging.getLogger(f"parlance.{__name__}")

KEY_PROTOCOL = "openai-insecure-api-key."
"""Before a key among the subprotocols: browsers can set no header of a websocket."""

UPGRADED = 101


@dataclass(frozen=True, slots=True)
class AdmittedSocket:
    """A websocket with page, key, rate and scope in order.

    Attributes:
        session: settings of the session in the client secret, as JSON; None where a key opens it.
    """

    context: RequestContext
    session: str | None


def admit_socket(scope: KeyScope) -> Callable[[WebSocket], Awaitable[AdmittedSocket]]:
    """A dependency that lets a websocket in, as `admit` does a request; a client secret will do for the key."""

    async def admission(websocket: WebSocket) -> AdmittedSocket:
        exchange, session = exchange_of(websocket.scope), None
        exchange.scope = scope
        if not is_own_page(websocket, same_port=True):
            raise foreign_page(websocket)
        authorization = _authorization(websocket)
        if secret := _client_secret(authorization):
            look_up = exchange.service.state.client_secrets.open(secret)
            caller, session = await counting_wrong_keys(websocket, look_up)
        else:
            caller = await authenticated(websocket, authorization)
        context = await entered(exchange, caller)
        _count_messages(websocket, exchange)
        return AdmittedSocket(context, session)

    setattr(admission, MARK, scope)
    return admission


def _count_messages(websocket: WebSocket, exchange: Exchange) -> None:
    """Has the server that reads a websocket count its messages among the bodies of its key, from the first frame on."""
    hold = exchange.hold()

    def counted(count: int) -> None:
        try:
            hold(count)
        except ApiError as error:
            exchange.fault = error.fault
            exchange.service.concurrency.count(error)
            raise

    server: dict[str, Hold] = websocket.scope.get("extensions", {}).get(HOLD_EXTENSION, {})
    server["hold"] = counted
    exchange.resources.callback(server.clear)


def _authorization(websocket: WebSocket) -> str | None:
    """The header, or the one that a key among the subprotocols stands for."""
    protocols: list[str] = websocket.scope.get("subprotocols", [])
    keys = [name.removeprefix(KEY_PROTOCOL) for name in protocols if name.startswith(KEY_PROTOCOL)]
    return websocket.headers.get("authorization") or (f"Bearer {keys[0]}" if keys else None)


def _client_secret(authorization: str | None) -> str | None:
    scheme, _, token = (authorization or "").partition(" ")
    return token if scheme.lower() == "bearer" and token.startswith(PREFIX) else None


class SocketSender:
    """Sends what answers one websocket, with the headers of every reply.

    Attributes:
        status: of the answer to the upgrade; 0 until it has gone out.
    """

    def __init__(self, exchange: Exchange, send: Send, with_headers: Callable[[Exchange, Message], Any]) -> None:
        self.status = 0
        self._exchange, self._send, self._with_headers = exchange, send, with_headers

    async def __call__(self, message: Message) -> None:
        if not self.status and message["type"] in ("websocket.accept", "websocket.http.response.start"):
            self.status = message.get("status", UPGRADED)
            message = {**message, "headers": self._with_headers(self._exchange, message)}
        if not self.status and message["type"] == "websocket.close":
            # No route has this path. Starlette would answer 403.
            raise NOT_FOUND("there is no websocket at this path; `/v1/realtime` is one where live sessions are on")
        await self._send(message)


async def serve_socket(
    app: ASGIApp,
    exchange: Exchange,
    sender: SocketSender,
    refuse: Callable[[Exchange, ApiError], ASGIApp],
    scope: Scope,
    receive: Receive,
) -> None:
    """Serves one websocket. Its place is given back when it is closed."""
    try:
        with exchange.resources:
            exchange.resources.enter_context(exchange.service.concurrency.request(is_vital=False))
            await app(scope, receive, sender)
    except ApiError as error:
        await refuse(exchange, error)(scope, receive, sender)
    except Exception as error:
        log.error("websocket %s failed with an internal error: %s", exchange.request_id, without_text(error))
        exchange.fault = INTERNAL_ERROR().fault
        if sender.status == UPGRADED:
            await sender({"type": "websocket.close", "code": 1011, "reason": "internal server error"})
        elif not sender.status:
            await refuse(exchange, INTERNAL_ERROR())(scope, receive, sender)
