"""Tickets for uploads."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "tickets",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("org_id", Number, sa.ForeignKey("organisations.id"), nullable=False),
        sa.Column("content_type", sa.Text, nullable=False),
        sa.Column("size_bytes", Number, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("blob", sa.Text, nullable=False),
        sa.Column("expires_at", Number, nullable=False),
        sa.Column("sweep_at", Number, nullable=False),
        sa.CheckConstraint("state IN ('issued', 'uploaded', 'consumed')", name="state"),
        sqlite_strict=True,
    )
    op.create_index("ix_tickets_org_id", "tickets", ["org_id"])
    op.create_index("ix_tickets_sweep_at", "tickets", ["sweep_at"])


def downgrade() -> None:
    op.drop_table("tickets")
