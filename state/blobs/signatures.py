"""Signed addresses of files: each allows one method on one file until it expires.

    sign("drafts/3f/sample.mp3", expires_at, "GET")  ->  "expires=1800000000&key=1f3a5c7e&signature=9b..."
    verify(name, query, "GET")                       raises INVALID_SIGNATURE for anything else

Both generations of the service's secret verify, so addresses outlive one rotation.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from contract.errors import INVALID_SIGNATURE
from state.blobs.base import checked
from state.keys import Keyring

FILES_PURPOSE = "files"
"""Purpose of the derived secret under which addresses are signed."""

QUERY_PATTERN = re.compile(r"expires=([1-9][0-9]{0,11})&key=([0-9a-f]{8})&signature=([0-9a-f]{64})", re.ASCII)
"""The one accepted spelling, so that an address cannot be altered and still verify."""


class Signatures:
    """Signs and verifies addresses.

    Args:
        keyring: of purpose `files`.
        wall: clock in seconds since 1970.
    """

    def __init__(self, keyring: Keyring, wall: Callable[[], float] = time.time) -> None:
        self._keyring = keyring
        self._wall = wall

    def sign(self, name: str, expires_at: int, method: str) -> str:
        """The query of an address that allows `method` on the blob `name` before `expires_at` (seconds since 1970)."""
        signature = self._keyring.sign(_message(checked(name), expires_at, method))
        return f"expires={expires_at}&key={self._keyring.kid}&signature={signature.hex()}"

    def verify(self, name: str, query: str, method: str) -> None:
        """Raises INVALID_SIGNATURE unless `query` was made by `sign` for these and has not expired."""
        parts = QUERY_PATTERN.fullmatch(query)
        if parts is None:
            raise INVALID_SIGNATURE("the address is not signed, or was changed; use it exactly as received")
        expires_at, kid, signature = int(parts[1]), parts[2], bytes.fromhex(parts[3])
        if not self._keyring.verify(_message(name, expires_at, method), kid, signature):
            raise INVALID_SIGNATURE("the address was changed, or its secret has been replaced; request a new address")
        if self._wall() >= expires_at:
            raise INVALID_SIGNATURE("the address has expired; request a new one")


def _message(name: str, expires_at: int, method: str) -> bytes:
    # The name comes last and the others have no line break, so no two requests give the same message.
    return f"{method}\n{expires_at}\n{name}".encode(errors="surrogatepass")
