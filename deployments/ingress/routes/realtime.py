"""GET /realtime: live transcription over a websocket."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from contract.access import Scope
from contract.errors import INVALID_REQUEST
from contract.limits import WRITE_S
from contract.realtime import replies
from contract.realtime.limits import REALTIME_NOTICE_S, REALTIME_SESSION_S
from contract.realtime.session import DEFAULT
from deployments.ingress.context import RequestContext
from deployments.ingress.flows.realtime.session import Session
from deployments.ingress.flows.realtime.wire import TOO_SLOW
from deployments.ingress.front.sockets import admit_socket

log = logging.getLogger(f"parlance.{__name__}")

router = APIRouter(tags=["transcription"])

PROTOCOL = "realtime"
DRAIN_S = 30
"""Seconds between the notice that the server goes and the end of a session."""
CLOSE_S = 5
"""Seconds for a close to go out."""
REASON_BYTES = 123
"""Of a close, by RFC 6455."""


@router.websocket("/realtime")
async def listen(
    websocket: WebSocket, context: Annotated[RequestContext, Depends(admit_socket(Scope.TRANSCRIBE))]
) -> None:
    """Write down what is said while it is said, in the events of OpenAI's realtime transcription sessions."""
    query = websocket.query_params
    if query.get("intent", "transcription") != "transcription":
        raise INVALID_REQUEST(
            f"`intent` is `{query['intent'][:40]}`; this server has `transcription` sessions only", param="intent"
        )
    config = DEFAULT
    if model := query.get("model"):
        config = config.updated({"type": "transcription", "audio": {"input": {"transcription": {"model": model}}}})
    wire = _Socket(websocket)
    session = wire.session = Session(context, config, wire)
    with context.service.live.session(wire.drain):
        async with context.service.state.rates.stream(context.caller):
            await wire.open()
            async with session:
                await wire.serve()


class _Socket:
    """The socket of one session: one event at a time goes out, to a client that reads."""

    session: Session

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._sending = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._notice: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Accepts the upgrade."""
        offered: list[str] = self._websocket.scope.get("subprotocols", [])
        await self._websocket.accept(PROTOCOL if PROTOCOL in offered else None)
        self._after(REALTIME_SESSION_S - REALTIME_NOTICE_S, self._announce, "time_limit", REALTIME_NOTICE_S)

    async def serve(self) -> None:
        """Takes what the client sends, until either of the two has ended the connection."""
        try:
            while (message := await self._websocket.receive())["type"] != "websocket.disconnect":
                if (text := message.get("text")) is not None:
                    await self.session.take(text)
                else:
                    await self.session.teller.refuse(
                        INVALID_REQUEST("a binary frame came; send events as text, and sound as base64 in `audio`")
                    )
        finally:
            if self._timer:
                self._timer.cancel()

    async def tell(self, event: replies.Event) -> None:
        """Sends an event. A client that does not read for WRITE_S is left."""
        text = json.dumps(event, ensure_ascii=False)
        async with self._sending:
            if self._websocket.application_state is not WebSocketState.CONNECTED:
                return
            try:
                async with asyncio.timeout(WRITE_S):
                    await self._websocket.send_text(text)
            except WebSocketDisconnect:
                pass
            except TimeoutError:
                log.info("left the client of %s, because it does not read", self.session.id)
                await self._close(TOO_SLOW, "the client does not read what is sent to it")

    async def close(self, code: int, reason: str) -> None:
        """Closes the socket after all events before; whoever waits for its next message is told of the end."""
        async with self._sending:
            await self._close(code, reason)

    async def _close(self, code: int, reason: str) -> None:
        if self._websocket.application_state is WebSocketState.CONNECTED:
            with suppress(WebSocketDisconnect, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._websocket.close(code, reason.encode()[:REASON_BYTES].decode(errors="ignore"))

    def drain(self) -> None:
        """This server goes."""
        self._announce("draining", DRAIN_S)

    def _announce(self, why: str, closes_in_s: int) -> None:
        self._notice = asyncio.create_task(self.tell(replies.session_expiring(why, closes_in_s)), name="notice")
        self._after(closes_in_s, self.session.end, why)

    def _after(self, seconds: float, step: Callable[..., None], *arguments: object) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, step, *arguments)
