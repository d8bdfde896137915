"""A client that sends exactly the bytes it is given. HTTP libraries refuse or tidy up what attackers send."""

import asyncio
import json
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import count
from typing import Any

from starlette.types import ASGIApp, Message, Send

ADDRESSES = count(int(IPv4Address("10.0.0.0")))


@dataclass(frozen=True)
class Answer:
    """Status, headers and body of one reply."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The Error object; fails if the body is anything else. Anthropic's wire has more around it."""
        body = json.loads(self.body)
        if "type" in body:
            assert (set(body), body["type"]) == ({"type", "error", "request_id"}, "error")
        else:
            assert set(body) == {"error"}
        error: dict[str, Any] = body["error"]
        assert {"message", "type", "param", "code"} <= set(error)
        return error


def http_scope(method: str, path: str, headers: list[tuple[bytes, bytes]], query: bytes = b"") -> dict[str, Any]:
    """A request as a server hands it on, from an address of its own: networks have rates."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": headers,
        "client": (str(IPv4Address(next(ADDRESSES))), 1),
        "server": ("127.0.0.1", 80),
    }


async def exchange(app: ASGIApp, scope: dict[str, Any], body: bytes, send: Send) -> None:
    """Runs `app` for a client that sends `body` at once, stays connected, and takes the reply as `send` does."""
    inbox: list[Message] = [{"type": "http.request", "body": body}]

    async def receive() -> Message:
        if not inbox:
            await asyncio.Event().wait()
        return inbox.pop()

    await app(scope, receive, send)


async def ask(
    app: ASGIApp,
    method: str,
    path: str,
    headers: list[tuple[bytes, bytes]] | None = None,
    body: bytes = b"",
    query: bytes = b"",
) -> Answer:
    """One request. `path` is what a server makes of the target: unquoted, without the query."""
    outbox: list[Message] = []

    async def send(message: Message) -> None:
        outbox.append(message)

    await exchange(app, http_scope(method, path, headers or [], query), body, send)
    start = outbox[0]
    fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(start["status"], fields, b"".join(message.get("body", b"") for message in outbox[1:]))
