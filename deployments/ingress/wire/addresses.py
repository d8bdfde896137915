"""Addresses that clients get: of bytes, signed, under the address at which clients reach this server."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from starlette.requests import Request

from contract.speech.voices import SAMPLE_ADDRESS_S
from deployments.ingress.context import Service
from deployments.ingress.front.admission import Admitted
from deployments.ingress.front.middleware import trace_of


def public_address(text: str) -> str:
    """`text` without a slash at its end. Raises ValueError unless it is an http(s) address of host and path only."""
    try:
        parts = urlsplit(text)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    plain = text.isascii() and text.isprintable() and not set(text) & set(' ?#@\\"<>')
    if not is_whole or not plain:
        raise ValueError(
            f"{text[:100]!r} is not a public address; it must look like https://api.example.org or "
            "https://example.org/voice"
        )
    return text.rstrip("/")


async def signed_address(admitted: Admitted, name: str) -> str:
    """An address that plays the blob `name` for an hour, without a key."""
    state = admitted.context.service.state
    if elsewhere := await state.blobs.presign(name, SAMPLE_ADDRESS_S):
        return elsewhere
    return own_address(admitted.request, name, int(state.clock()) + SAMPLE_ADDRESS_S, "GET")


def own_address(request: Request, name: str, expires_at: int, method: Literal["GET", "PUT"]) -> str:
    """An address at this server that allows `method` on `name`, without a key, until `expires_at`."""
    service = trace_of(request).service
    query = service.state.signatures.sign(name, expires_at, method)
    return f"{_base(request, service)}/files/{name}?{query}"


def signature_of(address: str) -> str:
    """The signature in an address that `own_address` made."""
    return address.rpartition("=")[2]


def _base(request: Request, service: Service) -> str:
    """As configured; without that, the address at which the client says it reached us."""
    return service.public_url or str(request.base_url).rstrip("/")
