"""API keys as text: made, read from a header, masked.

    prl_k3Jd92Xa_<43 characters: 256 random bits><6 characters: CRC32 of all before>

The public id names the key in lists and logs. The checksum tells a typo from a wrong key without a query, and spares
secret scanners false alarms. Only an HMAC of the whole text is stored (`api_keys.py`).
"""

from __future__ import annotations

import re
import secrets
import zlib
from dataclasses import dataclass, field
from string import ascii_lowercase, ascii_uppercase, digits

from contract.errors import INVALID_API_KEY, MISSING_API_KEY

BASE62 = digits + ascii_uppercase + ascii_lowercase
PUBLIC_ID_CHARS = 8
SECRET_CHARS = 43
CHECKSUM_CHARS = 6
MAX_HEADER_CHARS = 200

KEY_PATTERN = re.compile(r"\b([A-Za-z][A-Za-z0-9]{0,15}_[0-9A-Za-z]{8})_[0-9A-Za-z]{49}\b", re.ASCII)
"""Finds keys in any text; group 1 may be shown."""

PREFIX_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9]{0,15}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Key:
    """A key that is well formed and whose checksum holds, known or not. `text` stays out of reprs."""

    public_id: str
    text: str = field(repr=False)


def mint(prefix: str = "prl") -> Key:
    """A new random key. Raises ValueError for a prefix that is not 1 to 16 letters and digits, a letter first."""
    if not PREFIX_PATTERN.fullmatch(prefix):
        raise ValueError(f"the key prefix `{prefix}` is not 1 to 16 letters and digits with a letter first")
    public_id = "".join(secrets.choice(BASE62) for _ in range(PUBLIC_ID_CHARS))
    unchecked = f"{prefix}_{public_id}_{_base62(secrets.randbits(256), SECRET_CHARS)}"
    return Key(public_id, unchecked + _checksum(unchecked))


def read(text: str) -> Key | None:
    """The key in `text`, None if it is malformed or its checksum is wrong."""
    match = KEY_PATTERN.fullmatch(text)
    if not match or _checksum(text[:-CHECKSUM_CHARS]) != text[-CHECKSUM_CHARS:]:
        return None
    return Key(match[1][-PUBLIC_ID_CHARS:], text)


def read_bearer(authorization: str | None) -> Key:
    """The key of an `Authorization` header. Raises MISSING_API_KEY or INVALID_API_KEY, without quoting the header."""
    if not authorization:
        raise MISSING_API_KEY("send your API key as `Authorization: Bearer <API_KEY>`")
    scheme, _, token = authorization[:MAX_HEADER_CHARS].partition(" ")
    key = read(token.strip(" ")) if len(authorization) <= MAX_HEADER_CHARS else None
    if scheme.lower() != "bearer" or key is None:
        raise INVALID_API_KEY()
    return key


def mask(text: str) -> str:
    """`text` with the secret part of every key masked."""
    return KEY_PATTERN.sub(r"\1_[masked]", text)


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), CHECKSUM_CHARS)


def _base62(number: int, width: int) -> str:
    chars = []
    for _ in range(width):
        number, digit = divmod(number, 62)
        chars.append(BASE62[digit])
    return "".join(reversed(chars))
