"""Tickets, and uploads by clients of every kind, for the tests of what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.api.asgi import http_scope
from tests.api.conftest import Api, app_over
from tests.waiting import cancelled

PATH = "/v1/audio/uploads"
SOUND = b"the sound of a voice"
WEBM = {"content-type": "audio/webm"}


async def ticket_of(api: Api, size: int = len(SOUND), mime: str = "audio/webm", **options: Any) -> dict[str, Any]:
    reply = await api.send("POST", PATH, json={"mime": mime, "size": size}, **options)
    assert reply.status_code == 200, reply.text
    ticket: dict[str, Any] = reply.json()
    return ticket


async def put(api: Api, ticket: dict[str, Any], body: Any = SOUND, **headers: str) -> httpx.Response:
    return await api.client.put(ticket["upload_url"], content=body, headers=WEBM | headers)


async def put_raw(api: Api, ticket: dict[str, Any], body: Any, *headers: tuple[bytes, bytes]) -> int:
    """The status of a PUT whose body the app reads as it comes; a body that raises is a client that goes away."""
    parts = urlsplit(ticket["upload_url"])
    scope = http_scope("PUT", parts.path, [(b"content-type", b"audio/webm"), *headers], parts.query.encode())
    pieces = aiter(body)
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        try:
            return {"type": "http.request", "body": await anext(pieces), "more_body": True}
        except StopAsyncIteration:
            return {"type": "http.request", "body": b"", "more_body": False}
        except ConnectionResetError:
            return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app_over(api.service)(scope, receive, send)
    return statuses[0]


async def in_pieces(*pieces: bytes) -> AsyncGenerator[bytes, None]:
    """A body without a declared length."""
    for piece in pieces:
        yield piece


async def state_of(api: Api, ticket: dict[str, Any]) -> str:
    found = await api.state.tickets.find(ticket["upload_id"])
    assert found is not None
    return found.state


def stored(tmp_path: Path) -> list[Path]:
    """All files of the store, finished or not."""
    return [path for path in (tmp_path / "bytes").rglob("*") if path.is_file()]


async def transcribe(api: Api, ticket: dict[str, Any], key: str | None = None) -> httpx.Response:
    return await api.send("POST", "/v1/audio/transcriptions", key, json={"upload_id": ticket["upload_id"]})


class Body:
    """A body that sends its first bytes and then waits for more, which can be given up as on a real connection."""

    def __init__(self, first: bytes = SOUND[:5]) -> None:
        self._coming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._coming.put_nowait(first)
        self._left = False
        self.reached = asyncio.Event()

    def end(self, *rest: bytes) -> None:
        """Sends the rest."""
        for piece in (*rest, None):
            self._coming.put_nowait(piece)

    def leave(self) -> None:
        """Closes the connection in the middle."""
        self._left = True
        self._coming.put_nowait(None)

    def __aiter__(self) -> Body:
        return self

    async def __anext__(self) -> bytes:
        if self._coming.empty():
            self.reached.set()
        piece = await self._coming.get()
        if piece is None:
            raise ConnectionResetError if self._left else StopAsyncIteration
        return piece


@asynccontextmanager
async def under_way(
    api: Api, bodies: Sequence[Body], tickets: Sequence[dict[str, Any]] = ()
) -> AsyncIterator[list[asyncio.Task[int]]]:
    """A PUT of each body that has begun, to its ticket or to one of its own; given up at the end."""
    named = tickets or [await ticket_of(api) for _ in bodies]
    tasks = [asyncio.create_task(put_raw(api, *pair)) for pair in zip(named, bodies, strict=True)]
    await asyncio.gather(*(body.reached.wait() for body in bodies))
    yield tasks
    await cancelled(*tasks)
