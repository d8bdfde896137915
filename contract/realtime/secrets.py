"""POST /realtime/client_secrets: its request and reply."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from contract.base import Lenient
from contract.realtime.limits import CLIENT_SECRET_S, CLIENT_SECRET_SESSIONS


class ExpiresAfter(Lenient):
    """Lifetime of a secret. A session that is open continues after that.

    Attributes:
        anchor: start of the lifetime.
        seconds: length of the lifetime.
    """

    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(CLIENT_SECRET_S[1], ge=CLIENT_SECRET_S[0], le=CLIENT_SECRET_S[1])


class ClientSecretRequest(Lenient):
    """Request for a client secret.

    Attributes:
        expires_after: lifetime of the secret.
        max_sessions: sessions that may be open with the secret at a time.
        session: first settings of its sessions, as in `session.update`.
    """

    expires_after: ExpiresAfter = ExpiresAfter()
    max_sessions: int = Field(2, ge=CLIENT_SECRET_SESSIONS[0], le=CLIENT_SECRET_SESSIONS[1])
    session: dict[str, Any]


class ClientSecret(TypedDict):
    """A secret for a browser, which opens live sessions and nothing else."""

    value: str
    expires_at: int
    session: dict[str, Any]
