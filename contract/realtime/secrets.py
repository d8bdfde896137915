"""POST /realtime/client_secrets: what a request may say, and the reply."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from contract.base import Lenient
from contract.realtime.limits import CLIENT_SECRET_S


class ExpiresAfter(Lenient):
    """For how long a secret opens sessions. One that is open goes on after that.

    Attributes:
        anchor: from when.
        seconds: how long.
    """

    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(CLIENT_SECRET_S[1], ge=CLIENT_SECRET_S[0], le=CLIENT_SECRET_S[1])


class ClientSecretRequest(Lenient):
    """What is asked of a secret.

    Attributes:
        expires_after: when it ends.
        session: what its sessions are set to at first, as in `session.update`.
    """

    expires_after: ExpiresAfter = ExpiresAfter()
    session: dict[str, Any]


class ClientSecret(TypedDict):
    """A secret for a browser, which opens live sessions and nothing else."""

    value: str
    expires_at: int
    session: dict[str, Any]
