"""Reservations and usage lines."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "reservations",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("org_id", Number, sa.ForeignKey("organisations.id"), nullable=False),
        sa.Column("user_id", Number, sa.ForeignKey("users.id")),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("line", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("held_micro_eur", Number, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("lease_until", Number, nullable=False),
        sa.CheckConstraint("state IN ('held', 'settled', 'void')", name="state"),
        sqlite_strict=True,
    )
    op.create_index("ix_reservations_state_lease_until", "reservations", ["state", "lease_until"])
    op.create_table(
        "usage_lines",
        sa.Column("id", Number, primary_key=True),
        sa.Column("reservation_id", sa.Text, nullable=False),
        sa.Column("at_ms", Number, nullable=False),
        sa.Column("org_id", Number, sa.ForeignKey("organisations.id"), nullable=False),
        sa.Column("user_id", Number, sa.ForeignKey("users.id")),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("line", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("quantity", Number, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("cost_micro_eur", Number, nullable=False),
        sa.UniqueConstraint("reservation_id"),
        sa.CheckConstraint("cost_micro_eur >= 0", name="cost"),
        sqlite_strict=True,
    )
    op.create_index("ix_usage_lines_org_id_at_ms", "usage_lines", ["org_id", "at_ms"])


def downgrade() -> None:
    op.drop_table("usage_lines")
    op.drop_table("reservations")
