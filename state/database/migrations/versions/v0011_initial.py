"""The schema of 0.3.0. Its number is that of the last step of development: those databases need no change."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = None
compatible_since = revision
"""The oldest code that can work with this schema."""

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NONE = sa.text("0")
TABLES = (
    "facts",
    "acts",
    "drafts",
    "tickets",
    "voices",
    "reply_quotas",
    "replies",
    "usage_lines",
    "reservations",
    "budgets",
    "api_keys",
    "users",
    "organisations",
)
"""In an order in which they can be dropped."""


def upgrade() -> None:
    _create_accounts()
    _create_money()
    _create_replies()
    _create_voices()
    _create_operations()


def downgrade() -> None:
    for table in TABLES:
        op.drop_table(table)


def _texts(*names: str) -> tuple[sa.Column[str], ...]:
    return tuple(sa.Column(name, sa.Text, nullable=False) for name in names)


def _numbers(*names: str) -> tuple[sa.Column[int], ...]:
    return tuple(sa.Column(name, Number, nullable=False) for name in names)


def _counts(*names: str) -> tuple[sa.Column[int], ...]:
    return tuple(sa.Column(name, Number, nullable=False, server_default=NONE) for name in names)


def _id() -> sa.Column[int]:
    return sa.Column("id", Number, primary_key=True)


def _organisation() -> sa.Column[int]:
    return sa.Column("org_id", Number, sa.ForeignKey("organisations.id"), nullable=False)


def _user() -> sa.Column[int]:
    return sa.Column("user_id", Number, sa.ForeignKey("users.id"))


def _billed_to() -> tuple[sa.schema.SchemaItem, ...]:
    return (_organisation(), _user(), *_texts("key_id", "request_id", "line", "model"))


def _create(name: str, *parts: sa.schema.SchemaItem, indexes: tuple[tuple[str, ...], ...] = ()) -> None:
    op.create_table(name, *parts, sqlite_strict=True)
    for columns in indexes:
        op.create_index(f"ix_{name}_{'_'.join(columns)}", name, list(columns))


def _create_accounts() -> None:
    _create(
        "organisations",
        _id(),
        *_texts("name", "plan", "entitlements"),
        sa.Column("models", sa.Text),
        sa.Column("decision_model", sa.Text),
        sa.Column("requests_per_minute", Number),
        sa.Column("concurrent_streams", Number),
        *_numbers("created_at"),
        sa.UniqueConstraint("name"),
    )
    _create(
        "users", _id(), _organisation(), *_texts("name"), *_numbers("created_at"), sa.UniqueConstraint("org_id", "name")
    )
    _create(
        "api_keys",
        _id(),
        *_texts("public_id"),
        _organisation(),
        _user(),
        *_texts("kid"),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        *_texts("hint"),
        sa.Column("label", sa.Text),
        *_texts("scopes"),
        *_numbers("created_at"),
        *(sa.Column(name, Number) for name in ("last_used_at", "revoked_at", "expires_at")),
        sa.UniqueConstraint("public_id"),
        indexes=(("org_id",),),
    )


def _create_money() -> None:
    _create(
        "budgets",
        _id(),
        _organisation(),
        _user(),
        sa.Column("limit_micro_eur", Number),
        *_counts("spent_micro_eur", "held_micro_eur"),
        sa.Column("time_zone", sa.Text),
        sa.Column("renews_at", Number),
        *_counts("spent_before_micro_eur"),
        sa.UniqueConstraint("user_id"),
        *(sa.CheckConstraint(f"{name}_micro_eur >= 0", name=name) for name in ("limit", "spent", "held")),
    )
    # A user's row has the organisation as well, so that one organisation has one row without a user.
    whole = sa.text("user_id IS NULL")
    op.create_index(
        "uq_budgets_organisation", "budgets", ["org_id"], unique=True, sqlite_where=whole, postgresql_where=whole
    )
    _create(
        "reservations",
        sa.Column("id", sa.Text, primary_key=True),
        *_billed_to(),
        *_numbers("held_micro_eur"),
        *_texts("state"),
        *_numbers("created_at", "lease_until"),
        *_counts("used_micro_eur", "used_quantity"),
        sa.Column("used_unit", sa.Text),
        sa.Column("used_quantities", sa.Text),
        sa.CheckConstraint("state IN ('held', 'settled', 'void')", name="state"),
        indexes=(("state", "lease_until"),),
    )
    _create(
        "usage_lines",
        _id(),
        *_texts("reservation_id"),
        *_numbers("at_ms"),
        *_billed_to(),
        *_numbers("quantity"),
        *_texts("unit"),
        *_numbers("cost_micro_eur"),
        *_counts("recovered"),
        sa.Column("quantities", sa.Text),
        sa.Column("took_ms", Number),
        sa.Column("waited_ms", Number),
        sa.UniqueConstraint("reservation_id"),
        sa.CheckConstraint("cost_micro_eur >= 0", name="cost"),
        indexes=(("org_id", "at_ms"), ("user_id", "at_ms")),
    )


def _create_replies() -> None:
    _create(
        "replies",
        *_texts("key_id", "route", "idempotency_key", "attempt", "body_sha256"),
        sa.Column("status", Number),
        sa.Column("headers", sa.Text),
        sa.Column("body", sa.LargeBinary),
        *_numbers("created_at", "lease_until"),
        sa.Column("kid", sa.Text),
        sa.PrimaryKeyConstraint("key_id", "route", "idempotency_key"),
        indexes=(("created_at",),),
    )
    _create(
        "reply_quotas", sa.Column("key_id", sa.Text, primary_key=True), *_counts("replies", "body_bytes", "counted_at")
    )


def _create_voices() -> None:
    _create(
        "voices",
        _id(),
        _organisation(),
        *_texts("slug", "provider", "label", "gender", "age_group", "primary_language"),
        sa.Column("description", sa.Text),
        *_texts("transcript", "clip_blob", "sample_blob"),
        *_numbers("created_at"),
        sa.Column("recipe", sa.Text),
        sa.Column("runtime", sa.Text),
        sa.UniqueConstraint("org_id", "slug"),
        sa.CheckConstraint("gender IN ('m', 'f')", name="gender"),
    )
    _create(
        "tickets",
        sa.Column("id", sa.Text, primary_key=True),
        _organisation(),
        *_texts("content_type"),
        *_numbers("size_bytes"),
        *_texts("state", "blob"),
        *_numbers("expires_at", "sweep_at"),
        sa.CheckConstraint("state IN ('issued', 'uploaded', 'consumed')", name="state"),
        indexes=(("org_id",), ("sweep_at",)),
    )
    _create(
        "drafts",
        sa.Column("id", sa.Text, primary_key=True),
        *_billed_to(),
        *_texts("plan", "state"),
        *_numbers("created_at"),
        sa.Column("worker", sa.Text),
        sa.Column("work_at", Number),
        *_numbers("failures"),
        sa.Column("made", sa.Text),
        *_numbers("cost_micro_eur"),
        sa.Column("voice_slug", sa.Text),
        sa.Column("error", sa.Text),
        *_numbers("ends_at"),
        sa.Column("sweep_at", Number),
        sa.CheckConstraint("state IN ('pending', 'ready', 'adopted', 'discarded', 'failed')", name="state"),
        indexes=(("org_id", "created_at"), ("work_at",), ("sweep_at",)),
    )


def _create_operations() -> None:
    _create("acts", _id(), *_numbers("at_ms"), *_texts("os_user", "host", "act", "result"), indexes=(("at_ms",),))
    _create("facts", sa.Column("name", sa.Text, primary_key=True), *_texts("value"))
