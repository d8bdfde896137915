"""The table of docs/errors.md: every code by status. Causes and remedies on that page are written by hand."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from contract import errors
from contract.errors import FAULTS, Fault
from contract.limits import COLD_RETRY_AFTER_MAX_S
from docs.made.blocks import filled

COMPUTED = {
    errors.RATE_LIMIT_EXCEEDED,
    errors.TOO_MUCH_AT_ONCE,
    errors.BUSY,
    errors.WARMING_UP,
    errors.RUNTIME_UNAVAILABLE,
    errors.OVERLOADED,
}
"""Errors whose `Retry-After` is computed for each reply. Where the row has a value, that is the least."""
HEAD = """| status | `type` | `code` |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    faults = sorted(FAULTS.values(), key=lambda fault: (fault.status, fault.type, fault.code))
    by_status = groupby(faults, key=lambda fault: (fault.status, fault.type))
    rows = (f"| {status} | `{type}` | {_links(members)} |" for (status, type), members in by_status)
    return filled("errors.md", codes=HEAD + "\n".join(rows))


def headline(fault: Fault) -> str:
    """The beginning of a paragraph about `fault`: its status, and its headers about retries."""
    wait = str(fault.retry_after_s or "")
    if fault in COMPUTED:
        wait = f"{wait} to {COLD_RETRY_AFTER_MAX_S}" if wait else "varies"
    headers = [f"`Retry-After` {wait}"] if wait else []
    if fault.should_retry is not None:
        headers.append(f"`x-should-retry` {str(fault.should_retry).lower()}")
    return ", ".join([f"**{fault.status}**", *headers])


def _links(faults: Iterable[Fault]) -> str:
    return ", ".join(dict.fromkeys(f"[`{fault.code}`](#{fault.code})" for fault in faults))
