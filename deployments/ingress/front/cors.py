"""Web pages that call this server: which origins may, and the headers by which browsers learn it (CORS).

    allowed origin     a preflight is answered here, without a key; every reply, errors too, may be read by the page
    any other origin   no header of CORS at all: the browser keeps the reply from the page

Keys travel in headers that a page sets itself, so cookies and other credentials of the browser are never allowed.
Starlette's middleware is not used: it sends half of these headers to foreign origins, and `Vary` not to all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Scope

ANY = "*"
"""In place of a list: every page may call."""

METHODS = "GET, POST, PUT, DELETE"
PREFLIGHT_MAX_AGE_S = 7200
"""Browsers ask again after that; none keeps an answer for much longer."""

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9.-]+|\[[0-9a-f:]+\])(:\d{1,5})?", re.ASCII)
_DEFAULT_PORT = {"http": ":80", "https": ":443"}
_HEADER_NAMES = re.compile(r"[A-Za-z0-9-]{1,64}( ?, ?[A-Za-z0-9-]{1,64}){0,63}", re.ASCII)
_READABLE = frozenset({"cache-control", "content-language", "content-length", "content-type", "expires", "vary"})
"""Headers that pages may read anyway, or have no use for."""


def listed_origins(listed: Iterable[str]) -> frozenset[str]:
    """Returns the operator's origins as browsers write them. Raises ValueError for what no browser ever sends.

    `*` stands for every origin, and alone.
    """
    origins = frozenset(origin.strip().lower() for origin in listed)
    if ANY in origins and len(origins) > 1:
        raise ValueError(f"`{ANY}` allows every origin; do not list other origins with it")
    for origin in sorted(origins - {ANY}):
        scheme = origin.partition("://")[0]
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(
                f"`{origin[:100]}` is not an origin; it must look like `https://app.example.org`, without a path"
            )
        if origin.endswith(_DEFAULT_PORT.get(scheme, " ")):
            raise ValueError(
                f"`{origin[:100]}`: browsers leave out the default port of {scheme}; leave it out here too"
            )
    return origins


def is_allowed(origin: str, allowed: frozenset[str]) -> bool:
    """Says if pages of `origin` may call."""
    return ANY in allowed or origin in allowed


@dataclass(frozen=True, slots=True)
class Cors:
    """Adds headers for web pages where `ExchangeMiddleware` does, so that replies of its own errors have them as well.

    Attributes:
        allowed: origins as `listed_origins` gives them. Without any, the middleware does without.
    """

    allowed: frozenset[str] = frozenset()

    def preflight(self, scope: Scope) -> Response | None:
        """The answer to a preflight of an allowed origin; None for any other request, which the app answers."""
        headers_sent = Headers(scope=scope)
        if (
            scope["method"] != "OPTIONS"
            or "access-control-request-method" not in headers_sent
            or not self._origin(headers_sent)
        ):
            return None
        # Every header that the page has named, because SDKs have many of their own.
        names = headers_sent.get("access-control-request-headers", "").strip()
        named = {"access-control-allow-headers": names} if _HEADER_NAMES.fullmatch(names) else {}
        headers = {"access-control-allow-methods": METHODS, "access-control-max-age": str(PREFLIGHT_MAX_AGE_S), **named}
        return Response(status_code=204, headers=headers)

    def add_headers(self, scope: Scope, headers: MutableHeaders) -> None:
        """Says on a reply with all other `headers`, that the page may read it and them."""
        if ANY not in self.allowed:
            # Also where no page asks: a cache must not give that reply to one.
            headers.add_vary_header("Origin")
        if not (origin := self._origin(Headers(scope=scope))):
            return
        names = {name.lower() for name in headers.keys()} - _READABLE  # noqa: SIM118  # iterating gives no names
        exposed = sorted(name for name in names if not name.startswith("access-control-"))
        headers["access-control-allow-origin"] = ANY if ANY in self.allowed else origin
        headers["access-control-expose-headers"] = ", ".join(exposed)

    def _origin(self, headers_sent: Headers) -> str:
        """The origin of an allowed page; empty where no page, or a foreign one, asks."""
        origin = headers_sent.get("origin", "")
        return origin if origin and is_allowed(origin, self.allowed) else ""
