"""The graph under attack: where it is, who attacks and who stands by, and what it offers."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx

NOBODY = ""
"""Instead of a key: none is sent."""

REPLY_S = 150
"""How long a reply is waited for: a cold engine may take two minutes."""

ENOUGH_REQUESTS = 300
"""That an attack may need in a minute."""


@dataclass(frozen=True)
class Target:
    """One graph. Use `opened`, which asks it what it offers.

    Attributes:
        url: without a path.
        key: of the attacker, with every scope.
        other_key: of another organisation. Empty: somebody else is then played by the attacker's own key.
        is_short: whether attacks are to be small.
        models: ids by kind, as `GET /models` has them.
        requests_per_minute: of the attacker's key.
    """

    url: str
    key: str
    other_key: str
    is_short: bool
    client: httpx.AsyncClient
    models: dict[str, list[str]] = field(default_factory=dict)
    requests_per_minute: int = 0

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 80

    @property
    def bystander_key(self) -> str:
        """Of somebody else, as far as there is one."""
        return self.other_key or self.key

    def size(self, short: int, full: int) -> int:
        """How much of something to send."""
        return short if self.is_short else full

    async def send(self, method: str, path: str, *, key: str | None = None, **request: Any) -> httpx.Response:
        """One request with the attacker's key, or `key`."""
        headers = authorized(self.key if key is None else key) | request.pop("headers", {})
        return await self.client.request(method, path, headers=headers, **request)

    async def chat(self, text: str, *, key: str | None = None, **fields: Any) -> httpx.Response:
        """One short answer of the first chat model."""
        messages = [{"role": "user", "content": text}]
        body = {"model": self.models["chat"][0], "messages": messages, "max_tokens": 1} | fields
        return await self.send("POST", "/v1/chat/completions", key=key, json=body)

    async def replicas(self) -> dict[str, int]:
        """Running replicas of each engine."""
        counts: dict[str, int] = (await self.send("GET", "/healthz")).json()["replicas"]
        return counts

    async def rested(self) -> None:
        """Waits until the attacker may send ENOUGH_REQUESTS again: what is refused for its rate shows nothing."""
        while "x-ratelimit-limit" in (headers := (await self.send("GET", "/v1/me")).headers):
            enough = min(ENOUGH_REQUESTS, int(headers["x-ratelimit-limit"]) - 1)
            if int(headers["x-ratelimit-remaining"]) >= enough:
                return
            await asyncio.sleep(max(1, int(headers["x-ratelimit-reset"])))

    def stranger(self) -> httpx.AsyncClient:
        """A client without a key, on loopback from an address that was not seen before: its rate is its own."""
        own = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(256)}.{secrets.randbelow(250) + 2}"
        transport = httpx.AsyncHTTPTransport(local_address=own if is_loopback(self.url) else None)
        return httpx.AsyncClient(base_url=self.url, transport=transport, timeout=REPLY_S)


async def opened(url: str, key: str, other_key: str, *, is_short: bool) -> Target:
    """A target that answers. Raises SystemExit with a sentence where it or the key is of no use."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    client = httpx.AsyncClient(base_url=url, timeout=REPLY_S, limits=limits)
    target = Target(url, key, other_key, is_short, client)
    try:
        await target.rested()
        listed, me = await target.send("GET", "/v1/models"), await target.send("GET", "/v1/me")
    except httpx.HTTPError as error:
        raise SystemExit(f"{url} does not answer: {type(error).__name__}") from None
    if listed.status_code != 200:
        raise SystemExit(f"the key does not open GET /models: {listed.text[:200]}")
    for model in listed.json()["data"]:
        target.models.setdefault(model["kind"], []).append(model["id"])
    return Target(url, key, other_key, is_short, client, target.models, int(me.headers["x-ratelimit-limit"]))


def authorized(key: str) -> dict[str, str]:
    """The header that carries `key`."""
    return {"authorization": f"Bearer {key}"} if key else {}


def is_loopback(url: str) -> bool:
    """Whether the address is of this machine, as it is written."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def summary(replies: Iterable[httpx.Response]) -> str:
    """Statuses and codes with their counts: `200 x3, 429 busy x2`."""
    return counted(f"{reply.status_code} {code_of(reply)}".strip() for reply in replies)


def counted(names: Iterable[str]) -> str:
    """Each name with its count."""
    return ", ".join(f"{name} x{count}" for name, count in sorted(Counter(names).items()))


def code_of(reply: httpx.Response) -> str:
    """`error.code`, or nothing."""
    try:
        return str(reply.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""
