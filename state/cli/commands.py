"""Acts of the command line: each changes something and returns the text to print."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path

from sqlalchemy import Connection

from state import keys
from state.accounts import api_keys, organisations
from state.accounts.authentication import PEPPER
from state.billing import months
from state.database.base import now_s
from state.keys import Secrets
from state.open import check_secret, record_secret

UNITS_S = {"m": 60, "h": 3_600, "d": 86_400}
MIN_S, MAX_S = 60, 366 * 86_400
_DURATION = re.compile(r"(\d{1,9})([mhd])", re.ASCII)


def org_create(connection: Connection, options: Namespace, _home: Path) -> str:
    """Adds an organisation; its budget has no limit."""
    organisations.create(connection, options.name, options.plan, names(options.entitle), now_s(connection))
    return f"organisation {options.name} on plan {options.plan}"


def org_change(connection: Connection, options: Namespace, _home: Path) -> str:
    """Sets plan, entitlements and agreed limits; omitted ones stay."""
    changes: organisations.Changes = {}
    if options.plan is not None:
        changes["plan"] = options.plan
    if options.entitle is not None:
        changes["entitlements"] = names(options.entitle)
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
        organisations.change(connection, options.name, {"models": frozenset(names(options.only))})
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
    scopes = api_keys.parse_scopes(names(options.scopes))
    valid_s = None if options.valid_for is None else duration_s(options.valid_for)
    org_id = organisations.find(connection, options.org).id
    user_id = options.user and organisations.ensure_user(connection, org_id, options.user, now_s(connection))
    key = keys.mint(options.prefix)
    api_keys.store(
        connection,
        key,
        secrets_of(connection, home).derive(PEPPER),
        org_id=org_id,
        user_id=user_id,
        scopes=scopes,
        label=options.label,
        now_s=now_s(connection),
        expires_at=None if valid_s is None else now_s(connection) + valid_s,
    )
    return key.text


def key_revoke(connection: Connection, options: Namespace, _home: Path) -> str:
    """Revokes a key."""
    api_keys.revoke(connection, options.id, now_s(connection))
    return f"key {options.id} is revoked; running servers refuse it within 5 seconds"


def budget_set(connection: Connection, options: Namespace, _home: Path) -> str:
    """Sets or removes a spend limit, and whether it renews; what is not named stays."""
    if options.time_zone is not None and options.every != "month":
        raise ValueError("a time zone belongs to months; add `--every month`")
    org_id = organisations.find(connection, options.org).id
    known = {row.user for row in organisations.list_budgets(connection, org_id)}
    user_id = options.user and organisations.ensure_user(connection, org_id, options.user, now_s(connection))
    if options.every is not None:  # first: it may sum for long, and what is changed is locked
        new_zone = (options.time_zone or "UTC") if options.every == "month" else None
        months.set_renewal(connection, org_id, user_id, new_zone)
    organisations.set_limit(connection, org_id, user_id, options.limit_micro_eur)
    zone = months.time_zone(connection, org_id, user_id)
    limit = "no limit" if options.limit_micro_eur is None else f"a limit of {options.limit_micro_eur} micro-EUR"
    times = "" if zone is None else f" every month ({zone})"
    new = "" if options.user in known else "new "
    budget_owner = f"{new}user {options.user} of {options.org}" if options.user else f"organisation {options.org}"
    return f"{budget_owner} has {limit}{times}; running servers know within 5 seconds"


def secret_rotate(connection: Connection, options: Namespace, home: Path) -> str:
    """Adds a generation, unless dropping the oldest would invalidate keys."""
    kids = list(secrets_of(connection, home).derive(PEPPER).keys)
    dying = kids[keys.GENERATIONS - 1 :]
    lost = sum(api_keys.generations(connection).get(kid, 0) for kid in dying)
    if lost and not options.force:
        raise ValueError(
            f"{lost} keys were last used before the previous rotation and would become invalid; --force accepts that"
        )
    record_secret(connection, keys.rotate(home))
    return "rotated; restart the server. Keys move to the new generation when they are used"


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


def _agreed(limit: int, what: str) -> int | None:
    if limit < 0:
        raise ValueError(f"{what} cannot be {limit}; 0 means the plan's limit")
    return limit or None
