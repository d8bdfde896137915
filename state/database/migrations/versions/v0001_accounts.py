"""Organisations, users, keys and budgets."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "organisations",
        sa.Column("id", Number, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("entitlements", sa.Text, nullable=False),
        sa.Column("models", sa.Text),
        sa.Column("decision_model", sa.Text),
        sa.Column("requests_per_minute", Number),
        sa.Column("concurrent_streams", Number),
        sa.Column("created_at", Number, nullable=False),
        sa.UniqueConstraint("name"),
        sqlite_strict=True,
    )
    op.create_table(
        "users",
        sa.Column("id", Number, primary_key=True),
        sa.Column("org_id", Number, sa.ForeignKey("organisations.id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.UniqueConstraint("org_id", "name"),
        sqlite_strict=True,
    )
    op.create_table(
        "api_keys",
        sa.Column("id", Number, primary_key=True),
        sa.Column("public_id", sa.Text, nullable=False),
        sa.Column("org_id", Number, sa.ForeignKey("organisations.id"), nullable=False),
        sa.Column("user_id", Number, sa.ForeignKey("users.id")),
        sa.Column("kid", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("hint", sa.Text, nullable=False),
        sa.Column("label", sa.Text),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("last_used_at", Number),
        sa.Column("revoked_at", Number),
        sa.UniqueConstraint("public_id"),
        sqlite_strict=True,
    )
    op.create_index("ix_api_keys_org_id", "api_keys", ["org_id"])
    _create_budgets()


def _create_budgets() -> None:
    op.create_table(
        "budgets",
        sa.Column("id", Number, primary_key=True),
        sa.Column("org_id", Number, sa.ForeignKey("organisations.id"), nullable=False),
        sa.Column("user_id", Number, sa.ForeignKey("users.id")),
        sa.Column("limit_micro_eur", Number),
        sa.Column("spent_micro_eur", Number, nullable=False, server_default=sa.text("0")),
        sa.Column("held_micro_eur", Number, nullable=False, server_default=sa.text("0")),
        sa.UniqueConstraint("user_id"),
        sa.CheckConstraint("limit_micro_eur >= 0", name="limit"),
        sa.CheckConstraint("spent_micro_eur >= 0", name="spent"),
        sa.CheckConstraint("held_micro_eur >= 0", name="held"),
        sqlite_strict=True,
    )
    # A user's row has the organisation as well, so that one organisation has one row without a user.
    whole_organisation = sa.text("user_id IS NULL")
    op.create_index(
        "uq_budgets_organisation",
        "budgets",
        ["org_id"],
        unique=True,
        sqlite_where=whole_organisation,
        postgresql_where=whole_organisation,
    )


def downgrade() -> None:
    for table in ("budgets", "api_keys", "users", "organisations"):
        op.drop_table(table)
