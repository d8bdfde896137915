"""Answers kept for `Idempotency-Key`."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "replies",
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("idempotency_key", sa.Text, nullable=False),
        sa.Column("attempt", sa.Text, nullable=False),
        sa.Column("body_sha256", sa.Text, nullable=False),
        sa.Column("status", Number),
        sa.Column("headers", sa.Text),
        sa.Column("body", sa.LargeBinary),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("lease_until", Number, nullable=False),
        sa.PrimaryKeyConstraint("key_id", "route", "idempotency_key"),
        sqlite_strict=True,
    )
    op.create_index("ix_replies_created_at", "replies", ["created_at"])


def downgrade() -> None:
    op.drop_table("replies")
