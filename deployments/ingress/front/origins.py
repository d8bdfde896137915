"""Where a request comes from: the network address of its client, and the web page that sent it. Neither is a key."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection, Request

from contract.errors import FOREIGN_ORIGIN, ApiError
from deployments.ingress.context import trace_of
from deployments.ingress.front.cors import is_allowed
from deployments.ingress.front.proxies import parsed

_PLAIN_NAME = re.compile(r"[a-z0-9_-]+")

IPV6_CLIENT_BITS = 64
"""A client may have every address of such a network, so all of them count as one."""


def client_network(request: HTTPConnection) -> str:
    """What a keyless client is counted by: its IPv4 address, or the /64 network of its IPv6 address.

    What proxies have added to `X-Forwarded-For` is believed, what the client wrote there is not: `proxies.py`.
    """
    peer = request.client.host if request.client else ""
    entries = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
    forwarded = [entry.strip() for entry in entries if entry.strip()]
    return _network(trace_of(request).service.proxies.client(peer, forwarded))


def _network(text: str) -> str:
    address = parsed(text)
    if address is None:
        # A proxy that writes no addresses: its clients are one.
        return "nowhere"
    if not isinstance(address, IPv6Address):
        return str(address)
    return str(ip_network((int(address), IPV6_CLIENT_BITS), strict=False))


def refuse_foreign_pages(request: Request) -> None:
    """Against web pages that reach this server through a visitor's browser (DNS rebinding). Raises FOREIGN_ORIGIN.

    `Host` must be the public address, an IP address, or a name without a dot: a page can make any name of its own
    domain point here, but none of these. An `Origin`, which every browser sends with a POST, must be on that host, on
    the public one, or among those that the operator allows.
    """
    public = _host(trace_of(request).service.public_url or "")
    host = _host(f"//{request.headers.get('host', '')}")
    if "host" in request.headers and not (host and (host == public or _is_no_domain(host))):
        raise FOREIGN_ORIGIN(
            f"the Host header says `{request.headers['host'][:100]}`, which is not the address of this server; "
            "its operator can set PARLANCE_PUBLIC_URL"
        )
    if not is_own_page(request):
        raise foreign_page(request)


def foreign_page(request: HTTPConnection) -> ApiError:
    """What a page of another origin is told."""
    origin = request.headers["origin"][:100]
    return FOREIGN_ORIGIN(f"the request comes from a page of `{origin}`, which is not an origin of this server")


def is_own_page(request: HTTPConnection) -> bool:
    """Whether no page asks, or one of this host, of the public address, or of an origin that the operator allows."""
    service, origin = trace_of(request).service, request.headers.get("origin")
    if origin is None or is_allowed(origin, service.allowed_origins):
        return True
    return _host(origin) in {_host(f"//{request.headers.get('host', '')}"), _host(service.public_url or "")} - {""}


def _host(address: str) -> str:
    """The host of an address, lower case and without its port; empty where there is none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _is_no_domain(host: str) -> bool:
    """Whether no public name server can be asked for `host`."""
    try:
        ip_address(host)
    except ValueError:
        return bool(_PLAIN_NAME.fullmatch(host))
    return True
