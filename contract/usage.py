"""Usage of a client: parameters and reply of `GET /me/usage`."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from typing_extensions import TypedDict

from contract.access import Spend
from contract.base import query_parameter, rows_of_page
from contract.errors import INVALID_REQUEST
from contract.limits import USAGE_DAYS, USAGE_DEFAULT_DAYS, USAGE_DEFAULT_ROWS, USAGE_ROWS

DAY_S = 86_400
MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d))?", re.ASCII | re.IGNORECASE)

Position = tuple[str, str]
"""Day and model of a row, by which rows are sorted."""


class UsageRow(TypedDict):
    """Billed usage of one model on one day.

    Attributes:
        day: from midnight to midnight, UTC.
        requests: number of billed requests.
        quantities: quantities of the requests, by priced unit.
    """

    day: str
    model: str
    requests: int
    quantities: dict[str, int]
    cost_micro_eur: int


class UsageReply(TypedDict):
    """Usage by day and model, of the user of the key if it has one, else of the whole organisation."""

    object: Literal["list"]
    organisation: str
    user: str | None
    since: str
    until: str
    time_zone: Literal["UTC"]
    data: list[UsageRow]
    total_cost_micro_eur: int
    has_more: bool
    next_cursor: str | None
    spend: Spend


PARAMETERS = [
    query_parameter(
        "from", "First day or moment: 2026-11-01 (UTC), or RFC 3339. 30 days before `to` by default.", type="string"
    ),
    query_parameter(
        "to", "Day or moment at which the range ends, without it. The end of today by default.", type="string"
    ),
    query_parameter(
        "limit", "Rows of a page.", type="integer", minimum=1, maximum=USAGE_ROWS, default=USAGE_DEFAULT_ROWS
    ),
    query_parameter("cursor", "`next_cursor` of the page before.", type="string"),
]


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Query of a client: a range in milliseconds since 1970, without `until_ms`, most rows, and the row before them."""

    since_ms: int
    until_ms: int
    limit: int = USAGE_DEFAULT_ROWS
    after: Position | None = None

    @property
    def page_since_ms(self) -> int:
        """Start of the page: the day of its cursor."""
        if self.after is None:
            return self.since_ms
        return max(self.since_ms, 1000 * DAY_S * (date.fromisoformat(self.after[0]) - _EPOCH.date()).days)

    @classmethod
    def read(cls, parameters: Mapping[str, str], now_s: float) -> UsageQuery:
        """Reads PARAMETERS from an address and ignores all others. Raises INVALID_REQUEST."""
        until = _moment(parameters, "to") or _EPOCH + timedelta(days=now_s // DAY_S + 1)
        since = _moment(parameters, "from") or until - timedelta(days=USAGE_DEFAULT_DAYS)
        if since > until:
            raise INVALID_REQUEST(f"`from` ({since.isoformat()}) is after `to` ({until.isoformat()})", param="from")
        if until - since > timedelta(days=USAGE_DAYS):
            raise INVALID_REQUEST(
                f"`from` and `to` are {(until - since).days} days apart; at most {USAGE_DAYS} are allowed", param="from"
            )
        cursor = parameters.get("cursor")
        return cls(
            (since - _EPOCH) // MS,
            -((_EPOCH - until) // MS),
            rows_of_page(parameters.get("limit"), USAGE_DEFAULT_ROWS, USAGE_ROWS),
            None if cursor is None else _position(cursor),
        )


def cursor_after(row: UsageRow) -> str:
    """Returns the cursor of the rows after `row`."""
    return urlsafe_b64encode(f"{row['day']} {row['model']}".encode()).decode()


def _moment(parameters: Mapping[str, str], name: str) -> datetime | None:
    text = parameters.get(name)
    if text is None:
        return None
    try:
        if not _TIME.fullmatch(text):
            raise ValueError
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise INVALID_REQUEST(
            f"`{name}` is {text[:64]!r}; write a date (2026-11-20) or a time (2026-11-20T08:00:00Z; `+` is `%2B` in an "
            "address)",
            param=name,
        ) from None
    if not 1970 < moment.year < 9999:
        raise INVALID_REQUEST(f"`{name}` is in the year {moment.year}; send one from 1971 to 9998", param=name)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _position(cursor: str) -> Position:
    try:
        day, space, model = urlsafe_b64decode(cursor.encode("ascii")).decode().partition(" ")
        if space and date.fromisoformat(day).isoformat() == day:
            return day, model
    except ValueError:
        pass
    raise INVALID_REQUEST(f"`cursor` is {cursor[:64]!r}, which no page gave; send its `next_cursor`", param="cursor")
