"""Common parts of adapters of a provider's HTTP API: its address, which of two schemas it has, and its failures.

A provider that takes no more answers 429, which becomes PROVIDER_BUSY. Whatever else is not what was requested is
UPSTREAM_ERROR. httpx is a client, so the rule that models know no HTTP framework holds.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import httpx
from pydantic import field_validator

from contract.base import Frozen
from contract.errors import PROVIDER_BUSY, UPSTREAM_ERROR

log = logging.getLogger(f"parlance.{__name__}")

CONNECT_S = 10.0

KEEP_S = 30.0
"""Seconds after which an idle connection is closed: before servers do it, so that no request meets a closing one."""


class ProviderOptions(Frozen):
    """Options that all adapters of a provider share.

    Attributes:
        address: address of the API, with its version segment.
        model: the model's name at the provider.
        wire: the schema of the API.
        key_variable: environment variable that holds the key; None for a server that needs none.
    """

    address: str
    model: str
    wire: Literal["mistral", "openai"] = "mistral"
    key_variable: str | None = None

    @field_validator("address")
    @classmethod
    def _is_web_address(cls, address: str) -> str:
        if not address.startswith(("http://", "https://")):
            raise ValueError("the address of the API must begin with http:// or https://")
        return address

    def client_settings(self, model_id: str, connections: int) -> dict[str, Any]:
        """Arguments of a client of httpx. Raises ValueError for a key that is missing or cannot be one."""
        return {
            "base_url": self.address,
            "headers": self._authorization(model_id),
            "limits": httpx.Limits(max_connections=connections, keepalive_expiry=KEEP_S),
        }

    def _authorization(self, model_id: str) -> dict[str, str]:
        if self.key_variable is None:
            return {}
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            raise ValueError(
                f"`{model_id}` needs a key: set `{self.key_variable}` in the environment of the Ray processes"
            )
        if not (key.isascii() and key.isprintable()):
            raise ValueError(f"`{self.key_variable}` has characters that an API key cannot have; set it again")
        return {"Authorization": f"Bearer {key}"}


class ProviderError(Exception):
    """Error of an unexpected answer of a provider. The text says why, for the log, in words of this project."""


def check_status(response: httpx.Response) -> None:
    """Raises PROVIDER_BUSY for an answer of 429, and ProviderError for any other but 200."""
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        raise PROVIDER_BUSY()
    if response.status_code != httpx.codes.OK:
        raise ProviderError(f"it answered {response.status_code}")


@contextmanager
def provider_failures(model_id: str) -> Iterator[None]:
    """Makes one error of all that can go wrong on the way. Texts of other libraries stay out of the log."""
    try:
        yield
    except (httpx.HTTPError, ProviderError, TimeoutError) as error:
        reason = error if isinstance(error, ProviderError) else type(error).__name__
        log.warning("the provider of %s failed: %s", model_id, reason)
        raise UPSTREAM_ERROR() from None
