"""Unguessable ids, from a stock of random bytes of the system.

A system call for each id would release Python's lock. If another thread waits for the lock, the request then waits for
that thread, for up to five milliseconds.
"""

from __future__ import annotations

import os

ID_BYTES = 16
STOCK = 256
"""Ids of one refill."""

_stock: list[str] = []
os.register_at_fork(after_in_child=_stock.clear)


def random_id() -> str:
    """Returns 32 hexadecimal digits, different in each call. Safe to call from any thread."""
    while True:
        try:
            return _stock.pop()
        except IndexError:
            digits = os.urandom(ID_BYTES * STOCK).hex()
            _stock.extend([digits[start : start + 2 * ID_BYTES] for start in range(0, len(digits), 2 * ID_BYTES)])
