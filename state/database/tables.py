"""Tables of the database, the same for SQLite and PostgreSQL.

    organisations --< users --< api_keys        who may call
          |             |
        budgets       budgets                   limit, spent and held, one row per organisation and per user
    reservations ... usage_lines                money held and used so far, money billed
    replies, reply_quotas                       answers kept for `Idempotency-Key`, and how many of each API key
    voices                                      of organisations; their bytes are in `blobs`
    tickets                                     for uploads; their bytes are in `blobs`
    drafts                                      of voices, until they are adopted or end; their bytes are in `blobs`
    acts                                        what operators did on the command line
    facts                                       of the whole database: its secret, since which code, times of engines

Times are whole seconds since 1970 UTC (`_at`, `_until`) or milliseconds (`_ms`). Money is whole micro-EUR. The schema
is created by `migrations/`; a test compares the two.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.schema import SchemaItem

from state.database.base import NameSet, Number, Quantities

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _table(name: str, *parts: SchemaItem) -> Table:
    return Table(name, metadata, *parts, sqlite_strict=True)


def _texts(*names: str) -> tuple[Column[Any], ...]:
    """Columns of texts that no row lacks."""
    return tuple(Column(name, Text, nullable=False) for name in names)


def _numbers(*names: str) -> tuple[Column[Any], ...]:
    """Columns of numbers that no row lacks."""
    return tuple(Column(name, Number, nullable=False) for name in names)


def _counts(*names: str) -> tuple[Column[Any], ...]:
    """Columns of numbers that begin with 0."""
    return tuple(Column(name, Number, nullable=False, server_default=text("0")) for name in names)


def _id() -> Column[Any]:
    return Column("id", Number, primary_key=True)


def _organisation(*, index: bool = False) -> Column[Any]:
    return Column("org_id", ForeignKey("organisations.id"), nullable=False, index=index)


def _billed_to() -> tuple[Column[Any], ...]:
    """Billed work and its payer: the fields of `Entry`."""
    return (
        _organisation(),
        Column("user_id", ForeignKey("users.id")),
        *_texts("key_id", "request_id", "line", "model"),
    )


PURSE = "purse"
"""`line` of a reservation that holds money for requests in advance, and not for a single one."""

organisations = _table(
    "organisations",
    _id(),
    Column("name", Text, nullable=False, unique=True),
    *_texts("plan"),
    Column("entitlements", NameSet, nullable=False),
    Column("models", NameSet),
    Column("decision_model", Text),
    *(Column(name, Number) for name in ("requests_per_minute", "concurrent_streams")),
    *_numbers("created_at"),
)

users = _table(
    "users", _id(), _organisation(), *_texts("name"), *_numbers("created_at"), UniqueConstraint("org_id", "name")
)

api_keys = _table(
    "api_keys",
    _id(),
    Column("public_id", Text, nullable=False, unique=True),
    _organisation(index=True),
    Column("user_id", ForeignKey("users.id")),
    *_texts("kid"),
    Column("digest", LargeBinary, nullable=False),
    *_texts("hint"),
    Column("label", Text),
    Column("scopes", NameSet, nullable=False),
    *_numbers("created_at"),
    *(Column(name, Number) for name in ("last_used_at", "revoked_at", "expires_at")),
)

budgets = _table(
    "budgets",
    _id(),
    _organisation(),
    Column("user_id", ForeignKey("users.id"), unique=True),
    Column("limit_micro_eur", Number),
    *_counts("spent_micro_eur", "held_micro_eur"),
    # Of a budget that renews: where its months begin, when the next one does, and what was spent before this one.
    Column("time_zone", Text),
    Column("renews_at", Number),
    *_counts("spent_before_micro_eur"),
    *(CheckConstraint(f"{name}_micro_eur >= 0", name=name) for name in ("limit", "spent", "held")),
)
Index(
    "uq_budgets_organisation",
    budgets.c.org_id,
    unique=True,
    sqlite_where=budgets.c.user_id.is_(None),
    postgresql_where=budgets.c.user_id.is_(None),
)

reservations = _table(
    "reservations",
    Column("id", Text, primary_key=True),
    *_billed_to(),
    *_numbers("held_micro_eur"),
    *_texts("state"),
    *_numbers("created_at", "lease_until"),
    # As far as it was recorded while the request runs; what a crash leaves is billed from here.
    *_counts("used_micro_eur", "used_quantity"),
    Column("used_unit", Text),
    Column("used_quantities", Quantities),
    CheckConstraint("state IN ('held', 'settled', 'void')", name="state"),
)
Index("ix_reservations_state_lease_until", reservations.c.state, reservations.c.lease_until)

usage_lines = _table(
    "usage_lines",
    _id(),
    # Unique per reservation and not per request id: clients choose request ids, and a repeated one is billed again.
    Column("reservation_id", Text, nullable=False, unique=True),
    *_numbers("at_ms"),
    *_billed_to(),
    *_numbers("quantity"),
    *_texts("unit"),
    *_numbers("cost_micro_eur"),
    # 1: its process died, and this is what it had recorded until then.
    *_counts("recovered"),
    # What `quantity` adds up, by the units that have prices; how long it took until `at_ms`. NULL where it is unknown.
    Column("quantities", Quantities),
    *(Column(name, Number) for name in ("took_ms", "waited_ms")),
    CheckConstraint("cost_micro_eur >= 0", name="cost"),
)
Index("ix_usage_lines_org_id_at_ms", usage_lines.c.org_id, usage_lines.c.at_ms)
Index("ix_usage_lines_user_id_at_ms", usage_lines.c.user_id, usage_lines.c.at_ms)

replies = _table(
    "replies",
    *_texts("key_id", "route", "idempotency_key", "attempt", "body_sha256"),
    Column("status", Number),
    Column("headers", Text),
    Column("body", LargeBinary),
    Column("created_at", Number, nullable=False, index=True),
    *_numbers("lease_until"),
    # Generation of the secret that `body_sha256` is keyed with; NULL: of a version that did not key it.
    Column("kid", Text),
    PrimaryKeyConstraint("key_id", "route", "idempotency_key"),
)

reply_quotas = _table(
    "reply_quotas", Column("key_id", Text, primary_key=True), *_counts("replies", "body_bytes", "counted_at")
)

voices = _table(
    "voices",
    _id(),
    _organisation(),
    *_texts("slug", "provider", "label", "gender", "age_group", "primary_language"),
    Column("description", Text),
    *_texts("transcript", "clip_blob", "sample_blob"),
    *_numbers("created_at"),
    *(Column(name, Text) for name in ("recipe", "runtime")),
    UniqueConstraint("org_id", "slug"),
    CheckConstraint("gender IN ('m', 'f')", name="gender"),
)

tickets = _table(
    "tickets",
    Column("id", Text, primary_key=True),
    _organisation(index=True),
    *_texts("content_type"),
    *_numbers("size_bytes"),
    *_texts("state", "blob"),
    *_numbers("expires_at"),
    Column("sweep_at", Number, nullable=False, index=True),
    CheckConstraint("state IN ('issued', 'uploaded', 'consumed')", name="state"),
)

drafts = _table(
    "drafts",
    Column("id", Text, primary_key=True),
    # Who pays: the work may go on in another process, long after the request.
    *_billed_to(),
    *_texts("plan", "state"),
    *_numbers("created_at"),
    Column("worker", Text),
    Column("work_at", Number, index=True),
    *_numbers("failures"),
    Column("made", Text),
    *_numbers("cost_micro_eur"),
    *(Column(name, Text) for name in ("voice_slug", "error")),
    *_numbers("ends_at"),
    Column("sweep_at", Number, index=True),
    CheckConstraint("state IN ('pending', 'ready', 'adopted', 'discarded', 'failed')", name="state"),
)
Index("ix_drafts_org_id_created_at", drafts.c.org_id, drafts.c.created_at)

acts = _table(
    "acts", _id(), Column("at_ms", Number, nullable=False, index=True), *_texts("os_user", "host", "act", "result")
)

facts = _table("facts", Column("name", Text, primary_key=True), *_texts("value"))
