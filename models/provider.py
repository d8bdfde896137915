"""What adapters of a provider's HTTP API share: where it is, which of two schemas it has, and under which key."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import field_validator

from contract.base import Frozen

CONNECT_S = 10.0

KEEP_S = 30.0
"""An unused connection is kept so long: shorter than servers do, so that a request never meets one being closed."""


class ProviderOptions(Frozen):
    """Options of such an adapter, which adds its own.

    Attributes:
        address: of the API, with its version segment.
        model: name that the provider knows.
        wire: whose schema it has.
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
            raise ValueError(f"`{self.key_variable}` has characters that an API key cannot have; set it again")
        return key
