"""Which wire a path belongs to, as far as errors go: one that comes before any route has its wire's shape too."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from contract.errors import ApiError
from contract.messages.errors import error_body


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """How a wire tells an error.

    Attributes:
        body: the JSON body, of an error and the id of its request.
        id_headers: headers of every reply in which this wire's clients look for that id.
    """

    body: Callable[[ApiError, str], dict[str, Any]]
    id_headers: tuple[str, ...] = ("x-request-id",)


OPENAI = ErrorShape(lambda error, _: error.body())
ANTHROPIC = ErrorShape(error_body, ("x-request-id", "request-id"))

ANTHROPIC_PATHS = re.compile(r"(/v1)?/messages(/.*)?", re.DOTALL)


def error_shape(path: str) -> ErrorShape:
    """The shape for `path`, whether anything is there or not: OpenAI's where no other wire owns it."""
    return ANTHROPIC if ANTHROPIC_PATHS.fullmatch(path) else OPENAI
