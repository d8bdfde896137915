"""Tickets, and uploads by clients of every kind, for the tests of what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.api.asgi import http_scope
from tests.api.conftest import Api, app_over

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


class Slow:
    """A body that waits in the middle until it is told to go on."""

    def __init__(self, error: type[BaseException] | None = None) -> None:
        self.reached, self.go = asyncio.Event(), asyncio.Event()
        self._error = error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield SOUND[:5]
        self.reached.set()
        await self.go.wait()
        if self._error:
            raise self._error
        yield SOUND[5:]


class Stalled:
    """A body that has sent a byte and then stands still; a wait for more can be given up, as on a real connection."""

    def __init__(self) -> None:
        self.coming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.coming.put_nowait(SOUND[:1])
        self.reached = asyncio.Event()

    def __aiter__(self) -> Stalled:
        return self

    async def __anext__(self) -> bytes:
        if self.coming.empty():
            self.reached.set()
        piece = await self.coming.get()
        if piece is None:
            raise StopAsyncIteration
        return piece
