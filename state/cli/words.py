"""What commands make of the words of their arguments."""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy import Connection

from state import keys
from state.keys import Secrets
from state.open import check_secret

UNITS_S = {"m": 60, "h": 3_600, "d": 86_400}
MIN_S, MAX_S = 60, 366 * 86_400
_DURATION = re.compile(r"(\d{1,9})([mhd])", re.ASCII)


def names(text: str) -> list[str]:
    """The names of a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def duration_s(text: str) -> int:
    """The seconds that `30m`, `8h` or `7d` are. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text[:100]}` is not a time; write minutes, hours or days like 30m, 8h or 7d")
    seconds = int(match[1]) * UNITS_S[match[2]]
    if not MIN_S <= seconds <= MAX_S:
        raise ValueError(f"a key can be valid for 1m to {MAX_S // UNITS_S['d']}d, not {text}")
    return seconds


def secrets_of(connection: Connection, home: Path) -> Secrets:
    """The secret that the servers of this database have. Raises ValueError for another one."""
    secrets = keys.open_secrets(home, is_shared=connection.dialect.name != "sqlite")
    check_secret(connection, secrets)
    return secrets
