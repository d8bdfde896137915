"""docs/errors.md: every code with its cause and remedy."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from contract.errors import FAULTS, Fault
from contract.limits import COLD_RETRY_AFTER_MAX_S
from docs.made.remedies import REMEDIES

INTRODUCTION = """\
# Errors

<!-- Made by `make docs` of contract/errors.py and docs/made/remedies.py. -->

Every error is a JSON object, whatever the route; on Anthropic's wire it has [a shape of its own](api.md#post-messages)
around the same `code` and `message`. Decide by `status` and `code`; the wording of `message` may change.

```json
{"error": {"message": "`temperature`: input should be less than or equal to 2",
           "type": "invalid_request_error", "param": "temperature", "code": "invalid_request_error"}}
```

In a stream that has begun the same object is an event, `data: {"error": {...}}`, and no `[DONE]` follows.

**Send it again?** 408, 429 and 5xx, and 409 `idempotency_in_progress`: yes, after `Retry-After` seconds where it is
given; but not 501 and `not_configured`, which this server does not have. Everything else fails again unchanged.
`x-should-retry` says so where the status alone would mislead; OpenAI's clients obey both headers. With an
[`Idempotency-Key`](api.md#sending-a-request-twice) nothing is done or billed twice.

A 401 also carries `WWW-Authenticate: Bearer`. `varies`, or a range, is a wait that is computed for each reply.

"""

HEADER = ("status", "code", "type", "Retry-After", "x-should-retry")


def page() -> str:
    """The whole page: a table of all rows, then a section for each code."""
    faults = sorted(FAULTS.values(), key=lambda fault: (fault.status, fault.code))
    table = [_row(HEADER), _row("---" for _ in HEADER), *dict.fromkeys(_row(_cells(fault)) for fault in faults)]
    by_code = groupby(sorted(faults, key=lambda fault: fault.code), key=lambda fault: fault.code)
    sections = [_section(code, list(rows)) for code, rows in by_code]
    return INTRODUCTION + "\n".join([*table, "", *sections])


def _cells(fault: Fault) -> tuple[str, ...]:
    remedy = REMEDIES[fault.name]
    wait = str(fault.retry_after_s or "")
    if remedy.waits:
        wait = f"{wait} to {COLD_RETRY_AFTER_MAX_S}" if wait else "varies"
    should_retry = "" if fault.should_retry is None else f"`{str(fault.should_retry).lower()}`"
    return (str(fault.status), f"[`{fault.code}`](#{fault.code})", f"`{fault.type}`", wait, should_retry)


def _row(cells: Iterable[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _section(code: str, faults: list[Fault]) -> str:
    lines = [f"## `{code}`", ""]
    for fault in faults:
        remedy = REMEDIES[fault.name]
        lines += [f"**{fault.status}**, because {remedy.cause}.", remedy.remedy, ""]
    return "\n".join(lines)
