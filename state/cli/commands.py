"""What each command does, one function per command. Each returns the text to print."""

from __future__ import annotations

import time
from argparse import Namespace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from state import keys
from state.accounts import api_keys, organisations
from state.accounts.authentication import PEPPER
from state.billing import audit, usage
from state.cli import printing
from state.database.base import Database, migrate, open_database
from state.keys import Secrets
from state.open import check_secret, default_database, is_shared, record_secret

PAGE_LINES = 5_000


async def run(options: Namespace, home: Path, url: str | None) -> None:
    """Runs `options.command` in one transaction, or `options.report` in several, then prints the text."""
    address = url or default_database(home)
    if "migrate_to" in options:
        print(f"the schema is at {await migrate(address, options.migrate_to)}")
        return
    database = await open_database(address, upgrade=not is_shared(address))
    try:
        if "report" in options:
            answer = await options.report(database, options)
        else:
            answer = await database.run(lambda connection: options.command(connection, options, home))
    finally:
        await database.close()
    if answer:
        print(answer)


def org_create(connection: Connection, options: Namespace, _home: Path) -> str:
    """Adds an organisation; its budget has no limit."""
    organisations.create(connection, options.name, options.plan, _names(options.entitle), _now_s())
    return f"organisation {options.name} on plan {options.plan}"


def org_list(connection: Connection, _options: Namespace, _home: Path) -> str:
    """All organisations with plan, limits and money."""
    columns = ("id", "name", "plan", "entitlements", "models", "decision_model", "requests_per_minute")
    money = ("limit_micro_eur", "spent_micro_eur", "held_micro_eur")
    return printing.table(columns + money, [row._asdict() for row in organisations.all_rows(connection)])


def org_change(connection: Connection, options: Namespace, _home: Path) -> str:
    """Sets plan, entitlements and agreed limits; omitted ones stay."""
    changes: organisations.Changes = {}
    if options.plan is not None:
        changes["plan"] = options.plan
    if options.entitle is not None:
        changes["entitlements"] = _names(options.entitle)
    if options.requests_per_minute is not None:
        changes["requests_per_minute"] = _agreed(options.requests_per_minute, "requests per minute")
    if options.concurrent_streams is not None:
        changes["concurrent_streams"] = _agreed(options.concurrent_streams, "concurrent streams")
    if not changes:
        raise ValueError("there is nothing to change; `org change --help` lists the options")
    organisations.change(connection, options.name, changes)
    return f"organisation {options.name} changed"


def org_models(connection: Connection, options: Namespace, _home: Path) -> str:
    """Sets the enabled models if given, and returns them."""
    if options.all:
        organisations.change(connection, options.name, {"models": None})
    elif options.only is not None:
        organisations.change(connection, options.name, {"models": frozenset(_names(options.only))})
    models = organisations.find(connection, options.name).models
    return "all models of the server" if models is None else "\n".join(sorted(models)) or "no models"


def org_default_decision_model(connection: Connection, options: Namespace, _home: Path) -> str:
    """Sets the default decision model if given, and returns it."""
    if options.model is not None:
        model = None if options.model == "none" else options.model
        organisations.change(connection, options.name, {"decision_model": model})
    chosen: str | None = organisations.find(connection, options.name).decision_model
    return chosen or "the server's default"


def key_create(connection: Connection, options: Namespace, home: Path) -> str:
    """Creates a key. The text is the key alone, so that a script can read it."""
    scopes = api_keys.parse_scopes(_names(options.scopes))
    org_id = organisations.find(connection, options.org).id
    user_id = options.user and organisations.ensure_user(connection, org_id, options.user, _now_s())
    key = keys.mint(options.prefix)
    api_keys.store(
        connection,
        key,
        _secrets(connection, home).derive(PEPPER),
        org_id=org_id,
        user_id=user_id,
        scopes=scopes,
        label=options.label,
        now_s=_now_s(),
    )
    return key.text


def key_list(connection: Connection, options: Namespace, _home: Path) -> str:
    """The keys of an organisation, revoked ones too."""
    rows = api_keys.list_keys(connection, organisations.find(connection, options.org).id)
    shown = [
        {
            "id": row.public_id,
            "state": "valid" if row.revoked_at is None else "revoked",
            "user": row.user,
            "scopes": ",".join(sorted(row.scopes)),
            "ends with": row.hint,
            "created": _day(row.created_at),
            "last used": _day(row.last_used_at),
            "revoked": _day(row.revoked_at),
            "label": row.label,
        }
        for row in rows
    ]
    columns = ("id", "state", "user", "scopes", "ends with", "created", "last used", "revoked", "label")
    return printing.table(columns, shown)


def key_revoke(connection: Connection, options: Namespace, _home: Path) -> str:
    """Revokes a key."""
    api_keys.revoke(connection, options.id, _now_s())
    return f"key {options.id} is revoked; running servers refuse it within 5 seconds"


def budget_set(connection: Connection, options: Namespace, _home: Path) -> str:
    """Sets or removes a spend limit."""
    org_id = organisations.find(connection, options.org).id
    user_id = options.user and organisations.ensure_user(connection, org_id, options.user, _now_s())
    organisations.set_limit(connection, org_id, user_id, options.limit_micro_eur)
    whose = f"user {options.user} of {options.org}" if options.user else f"organisation {options.org}"
    limit = "no limit" if options.limit_micro_eur is None else f"a limit of {options.limit_micro_eur} micro-EUR"
    return f"{whose} has {limit}; running servers know within 5 seconds"


def budget_list(connection: Connection, options: Namespace, _home: Path) -> str:
    """Limits, spent and held of an organisation and its users."""
    rows = organisations.list_budgets(connection, organisations.find(connection, options.org).id)
    columns = ("user", "limit_micro_eur", "spent_micro_eur", "held_micro_eur", "in_advance_micro_eur")
    return printing.table(columns, [row._asdict() | {"user": row.user or "(organisation)"} for row in rows])


async def usage_report(database: Database, options: Namespace) -> str:
    """Billed requests, or sums by group. Reads in pages: on SQLite a running server waits for readers."""
    if options.org is not None:
        await database.run(lambda connection: organisations.find(connection, options.org))
    days = (_day_ms(options.since), _day_ms(options.until))
    which = usage.Filter(options.org, options.user, options.key, options.model, *days)
    if options.by is not None:
        by = _names(options.by)
        sums = await database.run(lambda connection: usage.sums(connection, which, by))
        return printing.FORMATS[options.format]((*dict.fromkeys((*by, "unit")), *usage.SUMS), sums)
    lines: list[usage.UsageLine] = []
    while page := await database.run(partial(usage.lines, which=which, after_id=_last_id(lines), count=PAGE_LINES)):
        lines += page
    columns = usage.COLUMNS if options.format == "json" else ("id", *usage.COLUMNS)
    return printing.FORMATS[options.format](columns, lines)


def secret_list(connection: Connection, _options: Namespace, home: Path) -> str:
    """Generations of the secret, and how many valid keys depend on each."""
    counts = api_keys.generations(connection)
    kids = list(_secrets(connection, home).derive(PEPPER).keys)
    rows = [{"kid": kid, "state": "newest" if kid == kids[0] else "previous"} for kid in kids]
    rows += [{"kid": kid, "state": "missing here"} for kid in counts if kid not in kids]
    return printing.table(("kid", "state", "valid keys"), [r | {"valid keys": counts.get(r["kid"], 0)} for r in rows])


def secret_rotate(connection: Connection, options: Namespace, home: Path) -> str:
    """Adds a generation, unless dropping the oldest would invalidate keys."""
    kids = list(_secrets(connection, home).derive(PEPPER).keys)
    dying = kids[keys.GENERATIONS - 1 :]
    lost = sum(api_keys.generations(connection).get(kid, 0) for kid in dying)
    if lost and not options.force:
        raise ValueError(
            f"{lost} keys were last used before the previous rotation and would become invalid; --force accepts that"
        )
    record_secret(connection, keys.rotate(home))
    return "rotated; restart the server. Keys move to the new generation when they are used"


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


def _secrets(connection: Connection, home: Path) -> Secrets:
    """The secret that the servers of this database have. Raises ValueError for another one."""
    secrets = keys.open_secrets(home, is_shared=connection.dialect.name != "sqlite")
    check_secret(connection, secrets)
    return secrets


def _last_id(lines: list[usage.UsageLine]) -> int:
    return lines[-1]["id"] if lines else 0


def _agreed(limit: int, what: str) -> int | None:
    if limit < 0:
        raise ValueError(f"{what} cannot be {limit}; 0 means the plan's limit")
    return limit or None


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _now_s() -> int:
    return int(time.time())


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
