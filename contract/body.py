"""Reading of JSON bodies: the bytes of a request become a validated model, or one clear 400. Every JSON route uses it.

The reader is stricter than `json.loads`: strict UTF-8, no NaN or Infinity and no number that would become one, no
duplicate keys (the order of decision questions matters), bounded depth, a bounded number of values, no lone surrogates
(a reply could not repeat them).

It runs in the event loop, so its time is bounded too. Work that grows with the bytes runs in C at hundreds of MB/s.
Work that grows with the values is bounded by their number, which is counted before any value is built.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import takewhile, zip_longest
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from contract.errors import INVALID_JSON, INVALID_REQUEST, ApiError
from contract.limits import JSON_DEPTH, JSON_ESCAPES, JSON_VALUES, VALUE_BYTES

M = TypeVar("M", bound=BaseModel)

Hold = Callable[[int], None]
"""Function that takes bytes from a budget, or raises; a negative number returns bytes to it."""
HOLD_EXTENSION = "parlance.hold"
"""Key in the scope of a websocket: a dict in which the app puts the `hold` of its client."""


def parse(model: type[M], raw: bytes, most_values: int = JSON_VALUES, hold: Hold | None = None) -> M:
    """Returns `raw` as an instance of `model`. Raises as `decode`, INVALID_REQUEST or the ApiError of a validator."""
    data = decode(raw, most_values, hold)
    if not isinstance(data, dict):
        raise INVALID_REQUEST(f"the body must be a JSON object, not {_kind(data)}")
    return validated(model, data)


def validated(model: type[M], data: Mapping[str, Any], at: tuple[str, ...] = ()) -> M:
    """Returns the fields `data` of a body, or of its part `at`, as an instance of `model`.

    Raises INVALID_REQUEST or the ApiError of a validator.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise explain(error, data, at) from None


def decode(raw: bytes, most_values: int = JSON_VALUES, hold: Hold | None = None) -> Any:
    """Returns `raw` as JSON values, with JSON_VALUES keys, arrays and objects at most. Raises INVALID_JSON.

    `hold` receives the memory of the values, in bytes, before they are built; its exceptions pass through.
    """
    if (escapes := raw.count(b"\\")) > JSON_ESCAPES:
        raise INVALID_JSON(f"the body has more than {JSON_ESCAPES} backslashes; split it into several requests")
    count = count_values(raw, most_values)
    if hold:
        hold(count * VALUE_BYTES)
    try:
        text = raw.decode("utf-8")
        if hold and not text.isascii():
            hold(sys.getsizeof(text) - len(raw))  # one emoji makes every character as wide as itself
        value = _read(text)
        # Most escapes are no surrogates, and finding a plain piece of text is many times faster than the pattern.
        if escapes and ("\\ud" in text or "\\uD" in text) and _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise INVALID_JSON("the body has an unpaired surrogate, which is not a character") from None
    except UnicodeDecodeError as error:
        raise INVALID_JSON(f"the body is not UTF-8: byte {error.start} cannot be decoded") from None
    except RecursionError:
        raise INVALID_JSON(f"the body is nested deeper than {JSON_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise INVALID_JSON(
            f"the body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except ValueError:
        most = sys.get_int_max_str_digits()
        raise INVALID_JSON(f"an integer has more than {most} digits; at most {most} are allowed") from None
    _check_depth(value)
    return value


def explain(error: ValidationError, data: Any, at: tuple[int | str, ...] = ()) -> ApiError:
    """Returns the first finding about `data` as a sentence that names the field, or the ApiError of a validator.

    Of a union, it is the deepest: it lies in the branch that the client meant. `at` is the path of `data` in the body.
    """
    placed = [(finding, _place(finding, data)) for finding in error.errors(include_url=False)]
    # A branch of the union is the first part of the location that is not in the body.
    parts = zip(placed[0][0]["loc"], placed[0][1], strict=False)
    shared = tuple(part for part, _ in takewhile(lambda pair: pair[0] == pair[1], parts))
    of_union = [(finding, place) for finding, place in placed if finding["loc"][: len(shared)] == shared]
    place = max((place for _, place in of_union), key=len)
    alike = [finding for finding, its_place in of_union if its_place == place]
    first = next((finding for finding in alike if finding["type"] not in _TYPES), alike[0])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ApiError):
        return cause
    field = _joined((*at, *place))
    match first["type"]:
        case "missing" | "union_tag_not_found":
            return INVALID_REQUEST(f"`{field}` is missing", param=field)
        case "extra_forbidden":
            return INVALID_REQUEST(f"`{field}` is not a field of this request", param=field)
        case type if type in _TYPES:
            sent = first["input"]
            reason = _mistyped(sent["type"] if type == "union_tag_invalid" else sent, alike)
        case _ if bound := next(filter(_BOUNDS.get, first.get("ctx", ())), None):
            reason = _out_of_bounds(first, bound)
        case _:
            reason = str(cause) if cause else first["msg"][:1].lower() + first["msg"][1:]
    return INVALID_REQUEST(f"`{field}`: {reason}" if field else reason, param=field or None)


def _out_of_bounds(finding: ErrorDetails, bound: str) -> str:
    """Returns what was sent, or how much of it, and what is allowed."""
    value, limit = finding["input"], finding["ctx"][bound]
    if bound.endswith("_length"):
        unit = "character" if isinstance(value, str) else "item"
        sent = f"{len(value)} {unit}{' was' if len(value) == 1 else 's were'}"
    else:
        sent = f"{_shown(value)} was"
    return f"{sent} sent; send {_BOUNDS[bound]} {_shown(limit)}"


def _shown(value: str | float) -> str:
    """Returns a text or a number, cut to 64 characters."""
    text = value if isinstance(value, str) else str(value).removesuffix(".0")
    text = text if len(text) <= 64 else f"{text[:64]}..."
    return f"`{text}`" if isinstance(value, str) else text


def _mistyped(value: Any, findings: Iterable[ErrorDetails]) -> str:
    """Returns what was sent, and all that the `findings` about it allow."""
    named = [_TYPES[finding["type"]].format_map(finding.get("ctx", {})).replace("'", "`") for finding in findings]
    *others, last = dict.fromkeys(named)
    sent = f"`{value[:64]}`" if isinstance(value, str) and "`" in "".join(named) else _kind(value)
    return f"{sent} was sent; send {', '.join(others)}{' or ' if others else ''}{last}"


def _place(finding: ErrorDetails, data: Any) -> tuple[int | str, ...]:
    """Returns the path of a finding in `data`: its location without the branches of unions."""
    place: list[int | str] = []
    for part, after in zip_longest(finding["loc"], finding["loc"][1:]):
        if isinstance(data, dict) and data.get("type") == part == after:
            continue  # a branch that has the name of the field in it, such as `text`
        if isinstance(part, int) if isinstance(data, list) else isinstance(data, dict) and part in data:
            data = data[part]
            place.append(part)
    if finding["type"] == "missing":
        place.append(finding["loc"][-1])
    elif finding["type"].startswith("union_tag_"):
        place.append("type")
    return tuple(place)


def _joined(parts: Iterable[int | str]) -> str:
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part[:64]}" if path else part[:64]
    return path


_TYPES = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "a boolean",
    "list_type": "an array",
    "tuple_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "string_or_list_type": "a string or an array",
    "string_or_model_type": "a string or an object",
    "none_required": "null",
    "literal_error": "{expected}",
    "union_tag_invalid": "{expected_tags}",
}
"""Wrong types and words: pydantic's name of the error, and what is allowed."""
_BOUNDS = {"max_length": "at most", "le": "at most", "lt": "less than"}
_BOUNDS |= {"min_length": "at least", "ge": "at least", "gt": "more than", "pattern": "text that matches"}
"""Bounds: pydantic's name of each, and the words before its value."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys: set[str] = set()
        for key, _ in pairs:
            if key in keys:
                raise INVALID_JSON(f"the key `{key[:64]}` appears twice in one object")
            keys.add(key)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise INVALID_JSON(f"`{name}` is not a JSON number")


class _NotFiniteError(Exception):
    """Number outside the range of floats; the first argument is its text."""


def _finite(text: str) -> float:
    value = float(text)
    if value - value != 0:  # faster than `math.isfinite`: there is no call
        raise _NotFiniteError(text)
    return value


# Made once: `json.loads` makes a decoder for each text that is not read in its default way.
_decode = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_float=_finite).decode
_decode_infinite = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant).decode


def _read(text: str) -> Any:
    """Returns `text` as JSON values. Any other error is reported before a number outside the range of floats."""
    try:
        return _decode(text)
    except _NotFiniteError as error:
        value = _decode_infinite(text)
        _check_depth(value)
        raise _not_finite(value, error.args[0]) from None


def _not_finite(value: Any, came: str) -> ApiError:
    """Returns the error for `value`, in which the number `came` is outside the range of floats."""
    shown = came if len(came) <= 32 else f"{came[:32]}..."
    place = _joined(next(_infinite(value, ())))
    return INVALID_JSON(
        f"{f'`{place}`' if place else 'a number'} is {shown}, which is outside the range of numbers, up to 1.8e308",
        param=place or None,
    )


def _infinite(value: Any, place: tuple[int | str, ...]) -> Iterator[tuple[int | str, ...]]:
    """Yields the paths of numbers that became infinite, in source order."""
    if isinstance(value, float) and math.isinf(value):
        yield place
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in members:
        yield from _infinite(part, (*place, name))


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a surrogate pair, written as an escape."""


def count_values(raw: bytes, most: int = JSON_VALUES, clear: int | None = None) -> int:
    """Returns an upper bound of the keys and values of `raw`, before any is built. Raises INVALID_JSON for too many.

    Punctuation inside strings is excluded only where there is more than `clear` of it in all; the default is `most`.
    """
    # Counting bytes clears most bodies; only those with much punctuation need a closer look.
    items, others = _separators(raw)
    if items + others > (most if clear is None else clear) or others > JSON_VALUES:
        plain = raw.replace(rb"\\", b"").replace(rb"\"", b"")
        # Each string is a key or a value, so this many quotes are too many of them, and fewer can be split.
        too_many = plain.count(b'"') > 2 * most
        items, others = (most, 1) if too_many else _separators(b"".join(plain.split(b'"')[::2]))
        if items + others > most:
            raise INVALID_JSON(f"the body has more than {most} keys and values; split it into several requests")
        if others > JSON_VALUES:
            raise INVALID_JSON(
                f"the body has more than {JSON_VALUES} keys, arrays and objects; split it into several requests"
            )
    return items + others


def _separators(raw: bytes) -> tuple[int, int]:
    """Returns the number of commas, and of colons and opening brackets, in `raw`.

    Outside strings, a comma precedes an item, and the others precede a member or a first item.
    """
    return raw.count(b","), raw.count(b":") + raw.count(b"[") + raw.count(b"{")


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level := [node for node in level if isinstance(node, (dict, list))]:
        depth += 1
        if depth > JSON_DEPTH:
            raise INVALID_JSON(f"the body is nested deeper than {JSON_DEPTH} levels")
        level = [child for node in level for child in (node.values() if isinstance(node, dict) else node)]


def _kind(value: Any) -> str:
    names = {list: "an array", dict: "an object", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else f"`{type(value).__name__}`")
