"""A relay between a client and its server, which is slow, silent, cut off, or loses answers."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Self


class Relay:
    """Passes on what comes to `port`. What it is told holds for all connections from then on.

    Attributes:
        port: where it listens.
        target: the port of the server.
        delay_s: pause before each answer of the server.
        loses: gets each request; where it says so, the server gets the request, and its answer is lost with the
            connection.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.delay_s = 0.0
        self.loses: Callable[[bytes], bool] = lambda _: False
        self._connections: set[asyncio.Task[None]] = set()
        self._left: dict[asyncio.Task[None], int] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self, after: int = 0) -> None:
        """Ends every connection that is open now, after so many more bytes of the server."""
        for connection in self._connections:
            if after:
                self._left[connection] = after
            else:
                connection.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        is_lost = asyncio.Event()

        async def requests(to: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while data := await reader.read(1 << 16):
                    if self.loses(data):
                        is_lost.set()
                    to.write(data)
                    await to.drain()

        async def answers(of: asyncio.StreamReader) -> None:
            with suppress(ConnectionError):
                while (data := await of.read(1 << 16)) and not is_lost.is_set():
                    await asyncio.sleep(self.delay_s)
                    left = self._left.get(task, len(data))
                    writer.write(data[:left])
                    await writer.drain()
                    if left < len(data):
                        return
                    if task in self._left:
                        self._left[task] -= len(data)

        with suppress(OSError, asyncio.CancelledError):
            server_reader, server = await asyncio.open_connection("127.0.0.1", self.target)
            ways = [asyncio.create_task(way) for way in (requests(server), answers(server_reader))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                server.close()
        self._left.pop(task, None)
        writer.close()
