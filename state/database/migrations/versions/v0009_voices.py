"""Drops the mark of voices that were being removed: a voice goes with its draft, in one transaction.

Older code reads the column, so it cannot work with this schema.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
compatible_since = revision
"""The oldest code that can work with this schema."""

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.execute("DELETE FROM voices WHERE removed_at IS NOT NULL")
    op.drop_index("ix_voices_removed_at", table_name="voices")
    op.drop_column("voices", "removed_at")


def downgrade() -> None:
    op.add_column("voices", sa.Column("removed_at", Number))
    op.create_index("ix_voices_removed_at", "voices", ["removed_at"])
