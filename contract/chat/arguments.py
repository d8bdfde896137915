"""Arguments of tool calls that a client repeats: JSON in a string, a body inside of a body."""

from __future__ import annotations

import json
from collections.abc import Iterable

from contract.body import count_values
from contract.errors import INVALID_REQUEST, ApiError
from contract.limits import JSON_VALUES


def check_arguments(calls: Iterable[tuple[str, str]]) -> None:
    """Raises INVALID_REQUEST where the arguments of a call, each after its place, are no JSON object.

    All of them together may hold as many values as a body: reading them takes as long, here and where a template does.
    """
    sent = list(calls)
    if not sent:
        return
    together = "".join(arguments for _, arguments in sent)
    is_much = sum(map(together.count, ",:[{")) > JSON_VALUES
    left = JSON_VALUES
    for place, arguments in sent:
        try:
            # Punctuation inside of strings, as code has it, is no value: most calls need no closer look.
            left -= count_values(arguments.encode(), left, clear=0) if is_much else 0
            readable = isinstance(json.loads(arguments), dict)
        except ApiError:
            raise INVALID_REQUEST(
                f"`{place}`: the arguments of all tool calls together have more than {JSON_VALUES} keys and values",
                param=place,
            ) from None
        except (ValueError, RecursionError):
            readable = False
        if not readable:
            raise INVALID_REQUEST(
                f"`{place}`: `arguments` of a tool call must be a string that contains a JSON object", param=place
            )
