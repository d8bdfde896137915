"""Keys: those that clients send, the service's own secret, and those that are derived from it.

    prl_k3Jd92Xa_<43 characters: 256 random bits><6 characters: CRC32 of all before>

The public id names an API key in lists and logs. The checksum distinguishes a typo from a wrong key without a query,
and spares secret scanners false alarms. Only an HMAC of the whole text is stored (`accounts/api_keys.py`).

The service's secret lives outside the database: in the environment (`PARLANCE_SECRET`, on clusters) or in
`<home>/secrets`, mode 0600, one hexadecimal line per generation, newest first. What was made under the previous
generation stays valid until the next rotation. Each purpose has keys of its own, derived from it.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from contract.errors import INVALID_API_KEY, MISSING_API_KEY
from state.blobs.folder import sync_folder

BASE62 = digits + ascii_uppercase + ascii_lowercase
PUBLIC_ID_CHARS = 8
SECRET_CHARS = 43
CHECKSUM_CHARS = 6
MAX_HEADER_CHARS = 200

KEY_PATTERN = re.compile(r"\b([A-Za-z][A-Za-z0-9]{0,15}_[0-9A-Za-z]{8})_[0-9A-Za-z]{49}\b", re.ASCII)
"""A whole key; group 1 is its public part."""

PREFIX_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9]{0,15}", re.ASCII)

FILE = "secrets"
SECRET_VARIABLE = "PARLANCE_SECRET"
GENERATIONS = 2
MIN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Key:
    """A well-formed key with a valid checksum, known or not. `text` stays out of reprs."""

    public_id: str
    text: str = field(repr=False)


def mint(prefix: str = "prl") -> Key:
    """A new random key. Raises ValueError for a prefix that is not 1 to 16 letters and digits, a letter first."""
    if not PREFIX_PATTERN.fullmatch(prefix):
        raise ValueError(f"the key prefix `{prefix}` must be 1 to 16 letters and digits, and begin with a letter")
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


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), CHECKSUM_CHARS)


def _base62(number: int, width: int) -> str:
    return "".join(BASE62[number // 62**place % 62] for place in reversed(range(width)))


@dataclass(frozen=True, slots=True)
class Keyring:
    """HMAC-SHA256 keys of one purpose. `kid` names the newest, which signs; all of them verify."""

    kid: str
    keys: Mapping[str, bytes] = field(repr=False)

    def sign(self, message: bytes, kid: str | None = None) -> bytes:
        """32 bytes under the newest key, or under `kid`. Raises KeyError for a generation that is gone."""
        return hmac.digest(self.keys[kid or self.kid], message, "sha256")

    def verify(self, message: bytes, kid: str, signature: bytes) -> bool:
        """Says if `signature` is that of `message` under `kid`, in constant time. False for an unknown `kid`."""
        return kid in self.keys and hmac.compare_digest(self.sign(message, kid), signature)


@dataclass(frozen=True, slots=True)
class Secrets:
    """Root secrets, newest first. Pass on what `derive` returns, never the roots."""

    roots: tuple[bytes, ...] = field(repr=False)

    def derive(self, purpose: str) -> Keyring:
        """The keys of one purpose, e.g. `api-keys` or `uploads`. No purpose can sign for another."""
        keys = {_kid(root): _hkdf(root, f"parlance/{purpose}") for root in self.roots}
        return Keyring(_kid(self.roots[0]), keys)


def open_secrets(home: Path, environ: Mapping[str, str] = os.environ, *, is_shared: bool = False) -> Secrets:
    """The secret of the environment, else of the file, which is created if missing.

    With `is_shared`, others must have the same secret, and a file that each makes for itself will not do.

    Raises ValueError if either is malformed, the file can be read by others, or a shared secret is missing.
    """
    if SECRET_VARIABLE in environ or is_shared:
        return shared_secrets(environ)
    path = home / FILE
    if not path.exists():
        home.mkdir(parents=True, exist_ok=True)
        write_once(path, secrets.token_hex(MIN_BYTES))
    sync_folder(home)  # a process that wrote the file may have died before it did
    if path.stat().st_mode & 0o077:
        raise ValueError(
            f"other users can read {path}; run `chmod 600` on it, and rotate the secret if they may have read it"
        )
    return Secrets(_parse(path.read_text(), str(path)))


def shared_secrets(environ: Mapping[str, str]) -> Secrets:
    """The secret of the environment. Raises ValueError if it is missing or malformed."""
    if SECRET_VARIABLE not in environ:
        raise ValueError(
            "several servers, or a database or Redis that several can share, need a common secret: set "
            f"{SECRET_VARIABLE} to the same value everywhere; `openssl rand -hex 32` makes one"
        )
    return Secrets(_parse(environ[SECRET_VARIABLE].replace(",", "\n"), SECRET_VARIABLE))


def rotate(home: Path, environ: Mapping[str, str] = os.environ) -> Secrets:
    """Adds a new generation to the file and drops all but the newest before it."""
    if SECRET_VARIABLE in environ:
        raise ValueError(
            f"the secret comes from {SECRET_VARIABLE}; restart all servers with `OLD,NEW` in it, then with `NEW,OLD`"
        )
    roots = (secrets.token_bytes(MIN_BYTES), *open_secrets(home, environ).roots)[:GENERATIONS]
    fresh = home / f"{FILE}.{secrets.token_hex(4)}"
    write_private(fresh, "\n".join(root.hex() for root in roots))
    fresh.replace(home / FILE)
    sync_folder(home)
    return Secrets(roots)


def write_once(path: Path, text: str) -> None:
    """Writes unless another process was faster; no reader sees half a file, and a full disk keeps none."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        write_private(fresh, text)
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink(missing_ok=True)


def write_private(path: Path, text: str) -> None:
    """Writes a new file that only this user can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def _parse(text: str, source: str) -> tuple[bytes, ...]:
    try:
        roots = tuple(bytes.fromhex(line) for line in text.split())
    except ValueError:
        raise ValueError(f"{source} must contain hexadecimal secrets; `openssl rand -hex 32` makes one") from None
    if not 1 <= len(roots) <= GENERATIONS or any(len(root) < MIN_BYTES for root in roots):
        raise ValueError(f"{source} must contain 1 to {GENERATIONS} secrets of at least {MIN_BYTES} bytes")
    return roots


def _kid(root: bytes) -> str:
    return sha256(_hkdf(root, "parlance/kid")).hexdigest()[:8]


def _hkdf(root: bytes, info: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info.encode()).derive(root)
