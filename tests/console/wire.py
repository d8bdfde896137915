"""What lies between the browser and the server, and can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.waiting import until

PIECE_BYTES = 65_536


class Wire:
    """Passes bytes on, both ways, at an address of its own.

    Attributes:
        url: its address, without a slash at its end.
    """

    def __init__(self, url: str) -> None:
        self._host, _, self._port = url.removeprefix("http://").partition(":")
        self.url = ""
        self._left: dict[asyncio.StreamWriter, int] = {}
        """How many bytes each open connection may still bring to the browser; those of `cut` only."""
        self._passing: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        """What passes bytes on to each browser."""

    def cut(self, after: int) -> None:
        """Ends each connection that is open now after so many more bytes to the browser. New ones are whole."""
        for browser, passing in self._passing.items():
            self._left[browser] = after
            if not after:
                passing.cancel()

    async def connect(self, reader: asyncio.StreamReader, browser: asyncio.StreamWriter) -> None:
        """Passes one connection on."""
        answers, server = await asyncio.open_connection(self._host, int(self._port))
        asking = asyncio.create_task(self._pass(reader, server))
        passing = self._passing[browser] = asyncio.create_task(self._pass(answers, browser))
        await asyncio.wait([passing])
        del self._passing[browser]
        self._left.pop(browser, None)
        asking.cancel()
        await asyncio.wait([asking])
        for end in (browser, server):
            end.close()
            with suppress(ConnectionError):
                await end.wait_closed()

    async def close(self) -> None:
        """Ends all connections."""
        self.cut(0)
        await until(lambda: not self._passing)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while piece := await source.read(PIECE_BYTES):
                left = self._left.get(target, len(piece))
                target.write(piece[:left])
                if target in self._left:
                    self._left[target] = left - len(piece)
                if left < len(piece):
                    return


@asynccontextmanager
async def wired(url: str) -> AsyncIterator[Wire]:
    """A wire to the server at this address."""
    wire = Wire(url)
    async with await asyncio.start_server(wire.connect, "127.0.0.1", 0) as server:
        wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield wire
        await wire.close()
