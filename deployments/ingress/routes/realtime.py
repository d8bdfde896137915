"""GET /realtime: live transcription over a websocket."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from concurrency.background import in_background
from contract.access import Scope
from contract.errors import INVALID_REQUEST
from contract.ids import random_id
from contract.limits import WRITE_S
from contract.realtime.events import close_reason
from contract.realtime.limits import REALTIME_NOTICE_S, REALTIME_SESSION_S
from contract.realtime.session import DEFAULT, AudioInput, ClientSecret, ClientSecretRequest
from deployments.ingress.flows.realtime.session import LiveSession, opening_object
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.front.sockets import AdmittedSocket, admit_socket
from deployments.ingress.wire.openapi import documented

log = logging.getLogger(f"parlance.{__name__}")

router = APIRouter(tags=["transcription"])

PROTOCOL = "realtime"
SECRET_SESSION_BYTES = 2048
"""Of a session that a client secret carries: headers have little room."""
DRAIN_S = 30
"""Seconds between the notice that the server stops and the end of a session."""
CLOSE_S = 5
"""Seconds for a close to go out."""


@router.websocket("/realtime")
async def listen(
    websocket: WebSocket, admitted: Annotated[AdmittedSocket, Depends(admit_socket(Scope.TRANSCRIBE))]
) -> None:
    """Write down what is said while it is said, in the events of OpenAI's realtime transcription sessions."""
    socket, context = _Socket(websocket), admitted.context
    session = socket.session = LiveSession(context, _config(websocket.query_params, admitted.session), socket)
    await context.service.state.ledger.require_funds(context.caller)
    # The place last: another session may give up its own for it.
    async with context.service.state.rates.stream(context.caller):
        with context.service.live.session(context.caller.org_id, socket):
            await socket.open()
            async with session:
                await socket.serve()


def _config(query: QueryParams, session: str | None) -> AudioInput:
    """Returns the first settings of the session. Raises INVALID_REQUEST."""
    if (intent := query.get("intent", "transcription")) != "transcription":
        raise INVALID_REQUEST(
            f"`intent` is `{intent[:40]}`; this server has `transcription` sessions only", param="intent"
        )
    config = DEFAULT.updated(json.loads(session)) if session else DEFAULT
    if model := query.get("model"):
        config = config.updated({"type": "transcription", "audio": {"input": {"transcription": {"model": model}}}})
    return config


@router.post("/realtime/client_secrets", openapi_extra=documented(ClientSecretRequest, ClientSecret))
async def create_client_secret(admitted: Annotated[Admitted, Depends(admit(Scope.TRANSCRIBE))]) -> Response:
    """Create a secret with which a browser can open live sessions, for ten minutes at most."""
    request, context = await admitted.body(ClientSecretRequest), admitted.context
    shown = opening_object(context, DEFAULT.updated(request.session))
    session = json.dumps(request.session, ensure_ascii=False, separators=(",", ":"))
    if (size := len(session.encode())) > SECRET_SESSION_BYTES:
        raise INVALID_REQUEST(
            f"`session` has {size} bytes; a secret carries at most {SECRET_SESSION_BYTES}; send the rest later",
            param="session",
        )
    await context.service.state.ledger.require_funds(context.caller)
    issue = context.service.state.client_secrets.issue
    value, expires_at = issue(context.caller, request.expires_after.seconds, session, request.max_sessions)
    return JSONResponse(ClientSecret(value=value, expires_at=expires_at, session=shown))


class _Socket:
    """The socket of one session: one event at a time goes out, to a client that reads."""

    session: LiveSession

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._sending = asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None
        self._is_left = False
        self._timer: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Accepts the upgrade."""
        offered: list[str] = self._websocket.scope.get("subprotocols", [])
        await self._websocket.accept(PROTOCOL if PROTOCOL in offered else None)

    async def serve(self) -> None:
        """Takes what the client sends, until either of the two has ended the connection."""
        self._serving = task = asyncio.current_task()
        if self._timer is None:  # this server may go already
            self._after(REALTIME_SESSION_S - REALTIME_NOTICE_S, self._announce, "time_limit", REALTIME_NOTICE_S)
        try:
            while (message := await self._websocket.receive())["type"] != "websocket.disconnect":
                # Without the content, which the session drops before a long event waits.
                await self.session.take(message.pop("text" if "text" in message else "bytes"))
                message["done"]()
        except asyncio.CancelledError:
            if not (self._is_left and task and task.uncancel() == 0):
                raise
        finally:
            self._serving = None  # what ends the session from here on is not cut
            if self._timer:
                self._timer.cancel()

    async def send(self, type: str, **members: Any) -> None:
        """Sends an event under a new id. A client that does not read for WRITE_S is left."""
        text = json.dumps({"type": type, "event_id": f"event_{random_id()}", **members}, ensure_ascii=False)
        async with self._sending:
            if self._is_left or self._websocket.application_state is not WebSocketState.CONNECTED:
                return
            try:
                async with asyncio.timeout(WRITE_S):
                    await self._websocket.send_text(text)
            except (WebSocketDisconnect, RuntimeError):
                pass  # RuntimeError: the server has begun to close, for a frame that is none, or for want of a pong
            except TimeoutError:
                log.info("left the client of %s, because it does not read", self.session.id)
                self._is_left = True
                if self._serving:
                    # A close would wait behind what is not read.
                    self._serving.cancel()

    async def close(self, code: int, reason: str) -> None:
        """Closes the socket after all events before. `serve` then receives the disconnect, and returns."""
        async with self._sending:
            if self._is_left or self._websocket.application_state is not WebSocketState.CONNECTED:
                return
            with suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._websocket.close(code, close_reason(reason))

    @property
    def idle_s(self) -> float:
        """Seconds since a turn was transcribed."""
        return self.session.idle_s

    def leave(self, why: str) -> None:
        """Ends the session: at once where it is `idle`."""
        self._announce(why, 0 if why == "idle" else DRAIN_S)

    def _announce(self, why: str, closes_in_s: int) -> None:
        in_background(self.send("parlance.session.expiring", why=why, closes_in_s=closes_in_s))
        self._after(closes_in_s, self.session.end, why)

    def _after(self, seconds: float, step: Callable[..., None], *arguments: object) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, step, *arguments)
