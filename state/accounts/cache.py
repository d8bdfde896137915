"""A bounded cache whose entries expire."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Values that expire after `ttl_s` seconds. Of more than `max_entries`, the oldest are evicted."""

    def __init__(self, max_entries: int, ttl_s: float) -> None:
        self._max_entries = max_entries
        self._ttl_s = ttl_s
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K, now_s: float) -> V | None:
        """The value, None if it is missing or expired."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None and now_s < entry[0] else None

    def put(self, key: K, value: V, now_s: float) -> None:
        """Stores `value`, which expires `ttl_s` after `now_s`."""
        self._entries[key] = (now_s + self._ttl_s, value)
        self._entries.move_to_end(key)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)
