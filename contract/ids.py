"""Ids that nobody can guess, from a stock of the system's random bytes.

Fetching sixteen of them for each id takes a call of the system, during which Python lets go of its lock: where another
thread waits for that, a request is behind it for up to five milliseconds.
"""

from __future__ import annotations

import os

ID_BYTES = 16
STOCK = 256
"""Ids that are made at once."""

_stock: list[str] = []
os.register_at_fork(after_in_child=_stock.clear)


def random_id() -> str:
    """32 hexadecimal digits, never twice the same. May be called by any thread."""
    while True:
        try:
            return _stock.pop()
        except IndexError:
            digits = os.urandom(ID_BYTES * STOCK).hex()
            _stock.extend(digits[start : start + 2 * ID_BYTES] for start in range(0, len(digits), 2 * ID_BYTES))
