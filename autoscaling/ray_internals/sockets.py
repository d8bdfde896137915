"""Bounds what the connections of clients cost in Serve's replica, before the app sees what they brought.

Serve's replica runs uvicorn, which handles all that one read brings at once, and collects the frames of a message
without counting them. Here connections take turns (`concurrency/slices.py`), a websocket has an allowance of frames
that are no messages, and its app counts the memory of what came from the first frame on.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import uvicorn
from ray.serve._private import http_util
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from concurrency.allowance import Allowance
from concurrency.slices import SlicedConnection, SliceQueue
from contract.body import HOLD_EXTENSION, Hold
from contract.errors import ApiError
from contract.limits import BODY_IDLE_S, MIB
from contract.realtime.events import close_reason
from contract.realtime.limits import REALTIME_MESSAGE_BYTES

SOCKET_BYTES = REALTIME_MESSAGE_BYTES + MIB
"""A longer message closes its websocket. The route refuses less than that, and keeps the connection."""
FRAME_BYTES = 512
"""Of memory for a frame or a message, beside its bytes."""

CONTROL_FRAMES = (2, 60)
"""Pings and pongs of a client: a second, and at once. Clients send one in 20 s or so."""
CONTINUATION_FRAMES = (200, 1_000)
"""The same of frames that continue a message. Most clients send none."""

LINGER_S = 1.0
"""Until a connection with unread bytes is closed. A close at once could overtake the frame that says why."""


class BoundedSocket(WebSocketsSansIOProtocol):
    """A websocket with bounds. Its messages have a member `done`, for the app to call before the next is read."""

    transport: Any
    """A `SlicedConnection`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._app: dict[str, Hold] = {}
        self._controls, self._continuations = Allowance(*CONTROL_FRAMES), Allowance(*CONTINUATION_FRAMES)
        self._frames_bytes = self._held_bytes = self._messages = 0
        self._deadline: asyncio.TimerHandle | None = None

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["extensions"][HOLD_EXTENSION] = self._app  # type: ignore[assignment]
            self._pause()  # until the app has accepted: before, no account is known on which bytes could be held

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.close_sent:
            self._hold_unfinished()
        elif not self.read_paused and not self.transport.is_closing():  # no answer to the close of the app
            self._stop_reading()

    async def receive(self) -> Any:
        return await self.queue.get()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.accept":
            self._resume()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        if self.transport.get_write_buffer_size():
            # Closing waits until the client has read all; a client that reads has done so by then.
            self.loop.call_later(self.close_timeout, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop_unfinished()
        super().connection_lost(exc)

    def handle_ping(self) -> None:
        if self._may(self._controls):
            super().handle_ping()

    def handle_pong(self, event: Any) -> None:
        if self._may(self._controls):
            super().handle_pong(event)

    def handle_cont(self, event: Any) -> None:
        if self._may(self._continuations):
            self._frames_bytes += FRAME_BYTES + len(event.data)
            super().handle_cont(event)

    def handle_parser_exception(self) -> None:
        assert self.conn.close_sent
        self._leave(self.conn.close_sent.code, self.conn.close_sent.reason)

    def send_receive_event_to_app(self) -> None:
        data, self.frames, self._frames_bytes = b"".join(self.frames), [], 0
        if self.close_sent:
            return
        self._hold_unfinished()
        content: str | bytes = data
        if self.curr_msg_data_type == "text":
            try:
                content = data.decode()
            except UnicodeDecodeError:
                self._leave(CloseCode.INVALID_DATA, "a text is not UTF-8")
                return
        held_bytes = FRAME_BYTES + 2 * sys.getsizeof(content)  # as it came, and as it is once it is read
        if self._hold(held_bytes):
            message: Any = {"type": "websocket.receive", self.curr_msg_data_type: content}
            self._messages += 1
            self.queue.put_nowait(message | {"done": partial(self._done, held_bytes)})
            self._pause()

    def _done(self, held_bytes: int) -> None:
        """The app has handled a message."""
        self._messages -= 1
        self._hold(-held_bytes)
        self._resume()

    def _may(self, allowance: Allowance) -> bool:
        """Uses a frame of an allowance, beyond which the client is left."""
        if is_beyond := allowance.use() > 0:
            self._leave(CloseCode.POLICY_VIOLATION, "more frames came than a client needs; send fewer, and whole ones")
        return not is_beyond

    def _hold(self, count: int) -> bool:
        """Counts memory on the client's account. A client without room is left."""
        try:
            if count and (hold := self._app.get("hold")):
                hold(count)
        except ApiError as error:
            self._leave(CloseCode.TRY_AGAIN_LATER, error.message)
            return False
        return True

    def _hold_unfinished(self) -> None:
        """Counts what is there of a message that has begun, which must be whole in time, and what waits behind it."""
        unfinished = self.conn.reader.buffer
        first_bytes = len(self.frames[0]) if self.frames else 0
        size_bytes = unfinished.__sizeof__() + first_bytes + self._frames_bytes + self.transport.waiting_bytes
        size_bytes = size_bytes if self._app else 0
        if is_held := self._hold(size_bytes - self._held_bytes):
            self._held_bytes = size_bytes
        self._set_deadline(is_due=is_held and bool(unfinished or self.frames) and not self.read_paused)

    def _drop_unfinished(self) -> None:
        """At once, and not when the collector finds this connection, which is part of a cycle."""
        self._frames_bytes = 0
        self.frames.clear()
        self.conn.reader.buffer.clear()
        self._hold_unfinished()

    def _set_deadline(self, *, is_due: bool) -> None:
        if self._deadline and not is_due:
            self._deadline.cancel()
            self._deadline = None
        elif is_due and not self._deadline:
            reason = f"a message was not whole within {BODY_IDLE_S} s"
            self._deadline = self.loop.call_later(BODY_IDLE_S, self._leave, CloseCode.POLICY_VIOLATION, reason)

    def _pause(self) -> None:
        self.read_paused = True
        self.transport.pause_reading()

    def _resume(self) -> None:
        """Reads once the app has handled all messages."""
        if self.read_paused and not self._messages and self.handshake_complete and not self.close_sent:
            self.read_paused = False
            self.transport.resume_reading()
            self._hold_unfinished()

    def _leave(self, code: int, reason: str) -> None:
        """Closes the connection, whatever else comes."""
        if self.close_sent:
            return
        self.conn.fail(code, close_reason(reason))
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self._stop_reading()

    def _stop_reading(self) -> None:
        """Ends a connection that has had its close, without what its client sends after it."""
        self._pause()
        self._drop_unfinished()
        self.loop.call_later(LINGER_S, self.transport.close)


def bound_connections() -> None:
    """Called in the constructor of the ingress, before Serve opens the port of its routes.

    Raises RuntimeError where this version of Ray serves them otherwise: the start is refused then.
    """
    if getattr(http_util, "uvicorn", None) not in (uvicorn, _BOUNDED):
        raise RuntimeError(
            f"this version of Ray does not serve by `uvicorn` in `{http_util.__name__}`, so connections would have no "
            "bound; install the version in requirements/"
        )
    http_util.uvicorn = _BOUNDED


def _config(*args: Any, **options: Any) -> uvicorn.Config:
    queue = SliceQueue()

    def connection(**of_server: Any) -> SlicedConnection:
        return SlicedConnection(HttpToolsProtocol(**of_server), queue)

    bounds: Any = {"ws": BoundedSocket, "ws_max_size": SOCKET_BYTES, "ws_per_message_deflate": False}
    return uvicorn.Config(*args, **{"http": connection} | bounds | options)


_BOUNDED = SimpleNamespace(Server=uvicorn.Server, Config=_config)
"""Module that Serve takes for `uvicorn`."""
