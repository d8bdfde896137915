"""From the bytes of a request to a validated model, or to one clear 400. Used by every JSON route.

The reader is stricter than `json.loads`: strict UTF-8, no NaN or Infinity, no duplicate keys (the order of decision
questions matters), bounded depth, a bounded number of values, no lone surrogates (they could not be echoed).

It runs in the event loop, so its time is bounded too: what grows with the bytes runs in C at hundreds of MB/s, and
what grows with the values is bounded by their number, which is counted before any of them is built.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from contract.errors import INVALID_JSON, INVALID_REQUEST, ApiError
from contract.limits import JSON_DEPTH, JSON_VALUES

M = TypeVar("M", bound=BaseModel)


def parse(model: type[M], raw: bytes) -> M:
    """`raw` as an instance of `model`. Raises INVALID_JSON, INVALID_REQUEST or the ApiError of a validator."""
    data = decode(raw)
    if not isinstance(data, dict):
        raise INVALID_REQUEST(f"the body must be a JSON object, not {_kind(data)}")
    return validated(model, data)


def validated(model: type[M], data: Mapping[str, Any]) -> M:
    """`data`, the fields of a body, as an instance of `model`. Raises INVALID_REQUEST or a validator's ApiError."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise explain(error) from None


def decode(raw: bytes) -> Any:
    """`raw` as JSON values. Raises INVALID_JSON."""
    _check_values(raw)
    try:
        text = raw.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
        # Most escapes are no surrogates, and finding a plain piece of text is many times faster than the pattern.
        if ("\\ud" in text or "\\uD" in text) and _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise INVALID_JSON("the body has a lone surrogate, which is no character") from None
    except UnicodeDecodeError as error:
        raise INVALID_JSON(f"the body is not UTF-8: byte {error.start} cannot be decoded") from None
    except RecursionError:
        raise INVALID_JSON(f"the body is nested deeper than {JSON_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise INVALID_JSON(
            f"the body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except ValueError as error:
        raise INVALID_JSON(f"the body is not valid JSON: {error}") from None
    _check_depth(value)
    return value


def explain(error: ValidationError) -> ApiError:
    """The first finding of pydantic as a sentence that names the field. An ApiError raised by a validator wins."""
    first = error.errors(include_url=False, include_input=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ApiError):
        return cause
    field = _path(first["loc"])
    if first["type"] == "missing":
        return INVALID_REQUEST(f"`{field}` is missing", param=field)
    if first["type"] == "extra_forbidden":
        return INVALID_REQUEST(f"`{field}` is not a field of this request", param=field)
    if first["type"] in ("too_long", "too_short"):
        return INVALID_REQUEST(f"`{field}`: {_miscounted(first['ctx'])}", param=field)
    reason = str(cause) if cause else first["msg"][:1].lower() + first["msg"][1:]
    return INVALID_REQUEST(f"`{field}`: {reason}" if field else reason, param=field or None)


def _miscounted(found: Mapping[str, Any]) -> str:
    bound = f"at most {found['max_length']}" if "max_length" in found else f"at least {found['min_length']}"
    return f"{found['actual_length']} items were sent; {bound} are allowed"


def _path(loc: tuple[int | str, ...]) -> str:
    """`messages[2].content` of `("messages", 2, "content")`; names of union branches are left out."""
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in _BRANCHES:
            path += f".{part}" if path else part
    return path


_BRANCHES = frozenset(
    {"str", "int", "float", "bool", "list", "dict", "system", "user", "assistant", "tool", "developer"}
)
"""Tags that pydantic adds to the place of a finding inside a union."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key `{key[:64]}` appears twice in one object")
            seen.add(key)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"`{name}` is not a JSON number")


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a pair, written as an escape."""


def _check_values(raw: bytes) -> None:
    """Counts keys and values without building one. Raises INVALID_JSON for more than JSON_VALUES."""
    # Counting bytes clears most bodies; only those with much punctuation need a closer look.
    if _separators(raw) <= JSON_VALUES:
        return
    plain = raw.replace(rb"\\", b"").replace(rb"\"", b"")
    # Each string is a key or a value, so this many quotes are too many of them, and fewer can be split.
    too_many = plain.count(b'"') > 2 * JSON_VALUES
    if too_many or _separators(b"".join(plain.split(b'"')[::2])) > JSON_VALUES:
        raise INVALID_JSON(f"the body holds more than {JSON_VALUES} keys and values; send it in parts")


def _separators(raw: bytes) -> int:
    """How many bytes of `raw` stand before a key or a value, if none of them is in a string."""
    return sum(raw.count(mark) for mark in (b",", b":", b"[", b"{"))


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level := [node for node in level if isinstance(node, (dict, list))]:
        depth += 1
        if depth > JSON_DEPTH:
            raise INVALID_JSON(f"the body is nested deeper than {JSON_DEPTH} levels")
        level = [child for node in level for child in (node.values() if isinstance(node, dict) else node)]


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
