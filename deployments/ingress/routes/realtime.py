"""GET /realtime: live transcription over a websocket."""

from __future__ import annotations

import asyncio
import json
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
from deployments.ingress.flows.realtime.session import Session, SessionOver
from deployments.ingress.front.sockets import admit_socket

router = APIRouter(tags=["transcription"])

PROTOCOL = "realtime"
DRAIN_S = 30
"""Seconds between the notice that the server goes and the end of a session."""

NORMAL, POLICY, TOO_SLOW = 1000, 1008, 1013
"""Codes with which a websocket is closed."""


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
    wire = _Wire(websocket)
    session = Session(context, config, wire.tell)
    with context.service.live.session(wire.drain):
        async with context.service.state.rates.stream(context.caller):
            await wire.open()
            async with session:
                wire.session = session
                await wire.serve()


class _Wire:
    """The socket of one session: one event at a time goes out, to a client that reads."""

    def __init__(self, websocket: WebSocket) -> None:
        self.session: Session | None = None
        self._websocket = websocket
        self._sending = asyncio.Lock()
        self._ending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Accepts the upgrade."""
        offered: list[str] = self._websocket.scope.get("subprotocols", [])
        await self._websocket.accept(PROTOCOL if PROTOCOL in offered else None)
        notice_s = REALTIME_SESSION_S - REALTIME_NOTICE_S
        self._timer = asyncio.get_running_loop().call_later(notice_s, self.end, "time_limit", REALTIME_NOTICE_S)

    async def serve(self) -> None:
        """Takes what the client sends, until either of the two ends the session."""
        assert self.session
        try:
            while True:
                message = await self._websocket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                await self._take(message)
        except SessionOver as over:
            code, reason = (POLICY, over.error.message) if over.error else (NORMAL, "")
            await self.close(code, reason)
        finally:
            if self._timer:
                self._timer.cancel()
            if self._ending:
                self._ending.cancel()

    async def _take(self, message: dict[str, str]) -> None:
        assert self.session
        if (text := message.get("text")) is not None:
            await self.session.take(text)
            return
        await self.session.refuse(
            INVALID_REQUEST("a binary frame came; send events as text, and sound as base64 in `audio`")
        )

    async def tell(self, event: replies.Event) -> None:
        """Sends an event. A client that does not read for WRITE_S is left; one that has gone is told nothing."""
        async with self._sending:
            if self._websocket.application_state is not WebSocketState.CONNECTED:
                return
            with suppress(WebSocketDisconnect, RuntimeError):
                try:
                    async with asyncio.timeout(WRITE_S):
                        await self._websocket.send_text(json.dumps(event, ensure_ascii=False))
                except TimeoutError:
                    await self.close(TOO_SLOW, "the client does not read what is sent to it")

    async def close(self, code: int, reason: str) -> None:
        """Closes the socket; what waits for its next message gets none."""
        with suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            async with asyncio.timeout(1):
                await self._websocket.close(code, reason[:120])

    def drain(self) -> None:
        """This server goes."""
        self.end("draining", DRAIN_S)

    def end(self, why: str, within_s: int) -> None:
        """Tells that the session ends, and ends it so many seconds later."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(why, within_s), name="end of session")

    async def _end(self, why: str, within_s: int) -> None:
        await self.tell(replies.session_expiring(why, within_s))
        await asyncio.sleep(within_s)
        if self.session:
            await self.session.finish()
        await self.close(NORMAL, why)
