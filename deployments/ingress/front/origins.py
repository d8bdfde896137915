"""Origin of a request: the network address of its client, and the web page that sent it. Neither is a key."""

from __future__ import annotations

import re
from functools import partial
from ipaddress import IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection, Request

from contract.errors import FOREIGN_ORIGIN, ApiError
from deployments.ingress.context import exchange_of
from deployments.ingress.front.cors import is_allowed
from deployments.ingress.front.proxies import parsed

_PLAIN_NAME = re.compile(r"[a-z0-9_-]+")

PORTS = {"http": 80, "https": 443}

IPV6_CLIENT_BITS = 64
"""A client may have every address of such a network, so all of them count as one."""


def client_network(request: HTTPConnection) -> str:
    """Returns the unit that a keyless client is counted by: its IPv4 address, or the /64 network of its IPv6 address.

    What proxies have added to `X-Forwarded-For` is believed, what the client wrote there is not: `proxies.py`.
    """
    address = parsed(exchange_of(request.scope).service.proxies.client(*_peer_and_forwarded(request)))
    if address is None:
        # A proxy that writes no addresses: its clients are one.
        return "nowhere"
    if not isinstance(address, IPv6Address):
        return str(address)
    return str(ip_network((int(address), IPV6_CLIENT_BITS), strict=False))


def is_from_proxy(request: HTTPConnection) -> bool:
    """Says if the request comes from a proxy that the operator has named."""
    return exchange_of(request.scope).service.proxies.sent(*_peer_and_forwarded(request))


def _peer_and_forwarded(request: HTTPConnection) -> tuple[str, list[str]]:
    """The address of the other end, and the entries of `X-Forwarded-For`."""
    entries = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
    peer = request.client.host if request.client else ""
    return peer, [entry.strip() for entry in entries if entry.strip()]


def refuse_foreign_pages(request: Request) -> None:
    """Against web pages that reach this server through a visitor's browser (DNS rebinding). Raises FOREIGN_ORIGIN.

    `Host` must be the public address, an IP address, or a name without a dot: a page can make any name of its own
    domain point here, but none of these. An `Origin`, which every browser sends with a POST, must be on that host, on
    the public one, or among those that the operator allows.
    """
    public = _host(exchange_of(request.scope).service.public_url or "")
    host = _host(f"//{request.headers.get('host', '')}")
    if "host" in request.headers and not (host and (host == public or _is_no_domain(host))):
        raise FOREIGN_ORIGIN(
            f"the Host header says `{request.headers['host'][:100]}`, which is not the address of this server; "
            "its operator can set PARLANCE_PUBLIC_URL"
        )
    if not is_own_page(request):
        raise foreign_page(request)


def foreign_page(request: HTTPConnection) -> ApiError:
    """Returns the error for a page of another origin."""
    origin = request.headers["origin"][:100]
    return FOREIGN_ORIGIN(f"the request comes from a page of `{origin}`, which is not an origin of this server")


def is_own_page(request: HTTPConnection, *, same_port: bool = False) -> bool:
    """Returns whether no page asks, or one of this host, of the public address, or of an allowed origin.

    With `same_port`, of this host and port: a browser opens websockets for pages that may read no reply.
    """
    service, origin = exchange_of(request.scope).service, request.headers.get("origin")
    if origin is None or is_allowed(origin, service.allowed_origins):
        return True
    address = f"{origin.partition(':')[0]}://{request.headers.get('host', '')}"
    part = partial(_host, with_port=same_port)
    return part(origin) in {part(address), part(service.public_url or "")} - {""}


def _host(address: str, *, with_port: bool = False) -> str:
    """The host of an address, in lower case; empty where there is none, or no port and no scheme with one."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", with_port and (parts.port or PORTS.get(parts.scheme, 0))
    except ValueError:
        return ""
    return f"{host}:{port}" if host and port else "" if with_port else host


def _is_no_domain(host: str) -> bool:
    """Says if no public name server can be asked for `host`."""
    try:
        ip_address(host)
    except ValueError:
        return bool(_PLAIN_NAME.fullmatch(host))
    return True
