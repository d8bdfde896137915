"""Client secrets: what a server hands to a browser, which opens live sessions with it in the name of the server's key.

    issue(caller, 600, '{"type": "transcription"}') -> ("ek_...", expires_at)
    await open(value) -> Caller, that session

A secret is signed and stored nowhere: every ingress replica knows it, and a revoked key takes its secrets with it. It
says which key issued it, until when it is good, and what its sessions are set to.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable

from contract.access import Caller
from contract.errors import EXPIRED_API_KEY, INVALID_API_KEY
from state.accounts.authentication import Accounts
from state.billing.months import iso_s
from state.keys import Keyring

SECRETS_PURPOSE = "client-secrets"
"""Purpose of the derived secret under which they are signed."""

PREFIX = "ek_"


class ClientSecrets:
    """Issues and opens them.

    Args:
        keyring: of purpose `client-secrets`.
        accounts: whose keys issue them.
        wall: clock in seconds since 1970.
    """

    def __init__(self, keyring: Keyring, accounts: Accounts, wall: Callable[[], float]) -> None:
        self._keyring, self._accounts, self._wall = keyring, accounts, wall

    def issue(self, caller: Caller, seconds: int, session: str) -> tuple[str, int]:
        """A secret and when it expires, in seconds since 1970. `session` is a JSON object."""
        expires_at = int(self._wall()) + seconds
        payload = json.dumps([caller.key_id, expires_at, session], separators=(",", ":")).encode()
        signature = self._keyring.sign(payload)
        return f"{PREFIX}{_text(payload)}.{self._keyring.kid}.{_text(signature)}", expires_at

    async def open(self, secret: str) -> tuple[Caller, str]:
        """Who issued it, and the session. Raises INVALID_API_KEY, EXPIRED_API_KEY, STATE_UNAVAILABLE."""
        try:
            text, kid, signature = secret.removeprefix(PREFIX).split(".")
            payload = _bytes(text)
            if not self._keyring.verify(payload, kid, _bytes(signature)):
                raise INVALID_API_KEY()
        except (ValueError, binascii.Error):
            raise INVALID_API_KEY() from None
        key_id, expires_at, session = json.loads(payload)
        if self._wall() >= expires_at:
            raise EXPIRED_API_KEY(f"the client secret expired at {iso_s(expires_at)}; create another")
        return await self._accounts.holder(key_id), session


def _text(data: bytes) -> str:
    """Characters that a subprotocol of a websocket may have."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
