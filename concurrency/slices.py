"""Bytes of connections, handled in slices for which all connections of an event loop take turns.

A protocol gets all that one read brought, up to 256 kB. In frames of six bytes these take half a second, in which the
loop does nothing else. A `SlicedConnection` stands between a transport and its protocol, and is each of them to the
other: the protocol gets SLICE_BYTES at a time, and nothing is read from the network while bytes wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

SLICE_BYTES = 1024
"""At most 170 frames, which take a millisecond or two. A read of no more is handled at once."""

TURN_S = 0.002
"""For the slices of all connections in one turn of the loop. Slices of an ordinary body take microseconds."""


class SliceQueue:
    """The connections of one event loop that have bytes waiting, in the order of their next slices."""

    def __init__(self) -> None:
        self._connections: deque[SlicedConnection] = deque()
        self._is_due = False

    def add(self, connection: SlicedConnection) -> None:
        """Puts a connection at the end."""
        self._connections.append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if self._connections and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        end_s = time.perf_counter() + TURN_S
        while self._connections:
            self._connections.popleft().handle_slice()
            if time.perf_counter() >= end_s:
                break
        self._is_due = False
        self._schedule()


class SlicedConnection(asyncio.Protocol):
    """One connection. It is in the queue whenever it has bytes waiting that its protocol would take.

    Args:
        protocol: handles the bytes, and takes this for its transport.
        queue: of its event loop.
    """

    def __init__(self, protocol: Any, queue: SliceQueue) -> None:
        self._protocol, self._queue = protocol, queue
        self._transport: Any = None
        self._waiting = bytearray()
        self._is_queued = self._is_paused = self._is_silent = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    @property
    def waiting_bytes(self) -> int:
        """Of memory, for what was read and not handed on."""
        return self._waiting.__sizeof__()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.write = self._transport.write  # called most
        self._protocol.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.clear()
        self._protocol.connection_lost(exc)

    def eof_received(self) -> Any:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def set_protocol(self, protocol: Any) -> None:
        """Has another protocol handle all further bytes."""
        self._protocol = protocol

    def pause_reading(self) -> None:
        """Hands on no bytes until `resume_reading`."""
        self._is_paused = True
        self._update()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._update()

    def data_received(self, data: bytes) -> None:
        if self._waiting or self._is_paused or len(data) > SLICE_BYTES:
            self._waiting += data
            self._update()
        else:
            self._protocol.data_received(data)

    def handle_slice(self) -> None:
        """Hands on the next slice, unless the protocol has paused since."""
        self._is_queued = False
        if self._waiting and not self._is_paused:
            piece = bytes(self._waiting[:SLICE_BYTES])
            del self._waiting[:SLICE_BYTES]
            try:
                self._protocol.data_received(piece)
            except Exception as error:
                context = {"message": "a protocol failed", "exception": error, "protocol": self._protocol}
                asyncio.get_running_loop().call_exception_handler(context)
                self._transport.abort()
        self._update()

    def _update(self) -> None:
        """Queues this connection, and reads from the network, as its state demands."""
        if self._transport.is_closing():
            self._waiting.clear()
            return
        if self._waiting and not self._is_paused and not self._is_queued:
            self._is_queued = True
            self._queue.add(self)
        if self._is_silent != (is_silent := self._is_paused or bool(self._waiting)):
            self._is_silent = is_silent
            (self._transport.pause_reading if is_silent else self._transport.resume_reading)()
