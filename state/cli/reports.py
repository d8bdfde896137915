"""Commands that only read. Each function returns the text to print, or yields it page by page."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator, Callable
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Row

from state.accounts import acts, api_keys, organisations
from state.accounts.authentication import PEPPER
from state.billing import audit, usage
from state.billing.months import iso_s, month_at, zone_of
from state.cli import printing
from state.cli.commands import names, secrets_of
from state.database.base import Database

R = TypeVar("R")

PAGE_LINES = 5_000


def org_list(connection: Connection, _options: Namespace, _home: Path) -> str:
    """All organisations with plan, limits and money."""
    columns = ("id", "name", "plan", "entitlements", "models", "decision_model", "requests_per_minute")
    money = ("limit_micro_eur", "spent_micro_eur", "held_micro_eur")
    return printing.table(columns + money, [row._asdict() for row in organisations.all_rows(connection)])


def key_list(connection: Connection, options: Namespace, _home: Path) -> str:
    """The keys of an organisation, revoked and expired ones too."""
    rows = api_keys.list_keys(connection, organisations.find(connection, options.org).id)
    shown = [
        {
            "id": row.public_id,
            "state": "revoked" if row.revoked_at is not None else "expired" if row.is_over else "valid",
            "user": row.user,
            "scopes": ",".join(sorted(row.scopes)),
            "ends with": row.hint,
            "created": _day(row.created_at),
            "last used": _day(row.last_used_at),
            "revoked": _day(row.revoked_at),
            "expires": None if row.expires_at is None else iso_s(row.expires_at),
            "label": row.label,
        }
        for row in rows
    ]
    columns = ("id", "state", "user", "scopes", "ends with", "created", "last used", "revoked", "expires", "label")
    return printing.table(columns, shown)


def budget_list(connection: Connection, options: Namespace, _home: Path) -> str:
    """Limits, spent and held of an organisation and its users, and when spending counts from 0 again."""
    rows = organisations.list_budgets(connection, organisations.find(connection, options.org).id)
    money = ("limit_micro_eur", "spent_micro_eur", "held_micro_eur", "in_advance_micro_eur")
    shown = [
        row._asdict()
        | {"user": row.user or "(organisation)", "left_micro_eur": organisations.left(row), "renews": _renews(row)}
        for row in rows
    ]
    return printing.table(("user", *money, "left_micro_eur", "renews"), shown)


def _renews(row: Row[Any]) -> str | None:
    if row.time_zone is None:
        return None
    zone = zone_of(row.time_zone)
    return f"every month, {iso_s(month_at(row.now_s, zone)[1], zone)} next ({row.time_zone})"


def secret_list(connection: Connection, _options: Namespace, home: Path) -> str:
    """Generations of the secret, and how many valid keys depend on each."""
    counts = api_keys.generations(connection)
    kids = list(secrets_of(connection, home).derive(PEPPER).keys)
    rows = [{"kid": kid, "state": "newest" if kid == kids[0] else "previous"} for kid in kids]
    rows += [{"kid": kid, "state": "missing here"} for kid in counts if kid not in kids]
    return printing.table(("kid", "state", "valid keys"), [r | {"valid keys": counts.get(r["kid"], 0)} for r in rows])


def check(connection: Connection, _options: Namespace, _home: Path) -> str:
    """Compares usage, budgets and reservations; raises OSError naming what does not add up."""
    if faults := audit.faults(connection):
        raise OSError("\n".join(faults))
    recovered = audit.recovered(connection)
    dead = f"; {recovered} usage lines were recovered from processes that died" if recovered else ""
    in_advance = audit.in_advance(connection)
    purses = f"; servers hold {in_advance} micro-EUR in advance" if in_advance else ""
    return f"usage, budgets and reservations add up{dead}{purses}"


async def usage_report(database: Database, options: Namespace) -> AsyncIterator[str]:
    """Billed requests, or sums by group."""
    await database.run(partial(organisations.require, org=options.org, user=options.user))
    days = (_day_ms(options.since), _day_ms(options.until))
    which = usage.Filter(options.org, options.user, options.key, options.model, *days)
    if options.by is not None:
        by = names(options.by)
        # Users of different organisations may have the same name.
        groups = usage.groups_of(by if options.org or "user" not in by else [*by, "organisation"])
        columns, pages = (*groups, *usage.SUMS), _summed(database, which, groups)
    else:
        columns = usage.COLUMNS if options.format == "json" else ("id", *usage.COLUMNS)
        pages = _pages(database, partial(usage.lines, which=which))
    async for text in printing.FORMATS[options.format](columns, pages):
        yield text


async def _summed(database: Database, which: usage.Filter, groups: tuple[str, ...]) -> AsyncIterator[list[Any]]:
    """One page: the sums of all slices, in the order of their groups."""
    sums: dict[tuple[Any, ...], Any] = {}
    async for page in _pages(database, partial(usage.sums, which=which, groups=groups)):
        for row in page:
            key = tuple((row[name] is not None, row[name]) for name in groups)
            before = sums.setdefault(key, row)
            if before is not row:
                before.update({name: before[name] + row[name] for name in usage.SUMS})
    yield [sums[key] for key in sorted(sums)]


async def audit_report(database: Database, options: Namespace) -> AsyncIterator[str]:
    """Returns what was done on the command line, and with which result."""
    pages = _pages(database, partial(acts.page, since_ms=_day_ms(options.since), count=PAGE_LINES))
    async for text in printing.FORMATS[options.format](acts.COLUMNS, pages):
        yield text


async def _pages(database: Database, read: Callable[..., tuple[list[R], int | None]]) -> AsyncIterator[list[R]]:
    """All rows, in pages of which only the last has fewer than PAGE_LINES.

    `read` is a short transaction over some rows after `after_id`: on SQLite a running server waits for readers.
    """
    rows: list[R] = []
    after_id: int | None = 0
    while after_id is not None:
        more, after_id = await database.run(partial(read, after_id=after_id))
        rows += more
        if after_id is None or len(rows) >= PAGE_LINES:
            yield rows
            rows = []


def _day(at_s: int | None) -> str | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).date().isoformat()


def _day_ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"`{text}` is not a date; write it like 2026-11-20") from None
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
