"""Client secrets: what a server hands to a browser, which opens live sessions with it in the name of the server's key.

    issue(caller, 600, '{"type": "transcription"}', 2) -> ("ek_...", expires_at)
    await open(value) -> Caller, that session

A secret is signed and stored nowhere: every ingress replica knows it, and a revoked key takes its secrets with it. It
holds the key that issued it, an id, its end, how many sessions it may have open, and their settings. It has limits of
its own, and all secrets of a key have half of the key's: visitors of a page leave the other half to its server.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import replace

from contract.access import Caller, RateOwner
from contract.errors import EXPIRED_API_KEY, INVALID_API_KEY
from contract.ids import random_id
from contract.realtime.limits import CLIENT_SECRET_REQUESTS
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
        accounts: of the keys that issue them.
        wall: clock in seconds since 1970.
    """

    def __init__(self, keyring: Keyring, accounts: Accounts, wall: Callable[[], float]) -> None:
        self._keyring, self._accounts, self._wall = keyring, accounts, wall

    def issue(self, caller: Caller, seconds: int, session: str, max_sessions: int) -> tuple[str, int]:
        """A secret, and its end in seconds since 1970. `session` is a JSON object."""
        expires_at = int(self._wall()) + seconds
        content = caller.key_id, expires_at, session, random_id(), max_sessions
        payload = json.dumps(content, separators=(",", ":")).encode()
        signature = self._keyring.sign(payload)
        return f"{PREFIX}{_text(payload)}.{self._keyring.kid}.{_text(signature)}", expires_at

    async def open(self, secret: str) -> tuple[Caller, str]:
        """The caller that it is of, and the session. Raises INVALID_API_KEY, EXPIRED_API_KEY, STATE_UNAVAILABLE."""
        try:
            text, kid, signature = secret.removeprefix(PREFIX).split(".")
            payload = _bytes(text)
            if not self._keyring.verify(payload, kid, _bytes(signature)):
                raise INVALID_API_KEY()
            key_id, expires_at, session, secret_id, max_sessions = json.loads(payload)
        except (ValueError, binascii.Error):
            raise INVALID_API_KEY() from None
        if self._wall() >= expires_at:
            raise EXPIRED_API_KEY(f"the client secret expired at {iso_s(expires_at)}; create another")
        return _derived(await self._accounts.holder(key_id), secret_id, max_sessions), session


def _derived(caller: Caller, secret_id: str, max_sessions: int) -> Caller:
    tariff = caller.tariff
    requests, streams = max(1, tariff.requests_per_minute // 2), max(1, tariff.concurrent_streams // 2)
    secret = RateOwner(f"secret {secret_id}", min(CLIENT_SECRET_REQUESTS, requests), min(max_sessions, streams))
    return replace(caller, derived=(secret, RateOwner(f"secrets of {caller.key_id}", requests, streams)))


def _text(data: bytes) -> str:
    """Characters that a subprotocol of a websocket may have."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
