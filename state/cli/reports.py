"""What each command that only reads shows. Each function returns the text to print."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Awaitable, Callable
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

R = TypeVar("R", usage.UsageLine, acts.Act)

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
    """Limits, spent and held of an organisation and its users, and when what was spent counts anew."""
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
    faults = audit.faults(connection)
    if faults:
        raise OSError("\n".join(faults))
    recovered = audit.recovered(connection)
    dead = f"; {recovered} usage lines were recovered from processes that died" if recovered else ""
    in_advance = audit.in_advance(connection)
    purses = f"; servers hold {in_advance} micro-EUR in advance" if in_advance else ""
    return f"usage, budgets and reservations add up{dead}{purses}"


async def usage_report(database: Database, options: Namespace) -> str:
    """Billed requests, or sums by group."""
    await database.run(partial(organisations.require, org=options.org, user=options.user))
    days = (_day_ms(options.since), _day_ms(options.until))
    which = usage.Filter(options.org, options.user, options.key, options.model, *days)
    if options.by is not None:
        by = names(options.by)
        sums = await database.run(lambda connection: usage.sums(connection, which, by))
        return printing.FORMATS[options.format]((*dict.fromkeys((*by, "unit")), *usage.SUMS), sums)
    lines = await _all(
        lambda after_id: database.run(partial(usage.lines, which=which, after_id=after_id, count=PAGE_LINES))
    )
    columns = usage.COLUMNS if options.format == "json" else ("id", *usage.COLUMNS)
    return printing.FORMATS[options.format](columns, lines)


async def audit_report(database: Database, options: Namespace) -> str:
    """What was done on the command line, and with which result."""
    since_ms = _day_ms(options.since)
    rows = await _all(
        lambda after_id: database.run(partial(acts.page, since_ms=since_ms, after_id=after_id, count=PAGE_LINES))
    )
    return printing.FORMATS[options.format](acts.COLUMNS, rows)


async def _all(read: Callable[[int], Awaitable[list[R]]]) -> list[R]:
    """All rows, read in pages: on SQLite a running server waits for readers."""
    rows: list[R] = []
    while page := await read(rows[-1]["id"] if rows else 0):
        rows += page
    return rows


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
