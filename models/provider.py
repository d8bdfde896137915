"""What adapters of a provider's HTTP API share: where it is, which of two schemas it has, and under which key."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import field_validator

from contract.base import Frozen

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
            raise ValueError("the address of the API begins with http:// or https://")
        return address

    def key(self, model_id: str) -> str | None:
        """The key, None where none is needed. Raises ValueError for one that is missing or cannot be one."""
        if self.key_variable is None:
            return None
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            raise ValueError(
                f"`{model_id}` needs a key: set `{self.key_variable}` in the environment of the Ray processes"
            )
        if not (key.isascii() and key.isprintable()):
            raise ValueError(f"`{self.key_variable}` holds characters that no key has; set it anew")
        return key
