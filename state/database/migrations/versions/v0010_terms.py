"""When keys expire and budgets renew; what operators did; an index for the usage of a user.

Older code would let expired keys in, and would not count the spending of a month, so it cannot work with this schema.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
compatible_since = revision
"""The oldest code that can work with this schema."""

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("expires_at", Number))
    op.add_column("budgets", sa.Column("time_zone", sa.Text))
    op.add_column("budgets", sa.Column("renews_at", Number))
    op.add_column("budgets", sa.Column("spent_before_micro_eur", Number, nullable=False, server_default=sa.text("0")))
    op.create_index("ix_usage_lines_user_id_at_ms", "usage_lines", ["user_id", "at_ms"])
    op.create_table(
        "acts",
        sa.Column("id", Number, primary_key=True),
        sa.Column("at_ms", Number, nullable=False),
        sa.Column("os_user", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("act", sa.Text, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
        sqlite_strict=True,
    )
    op.create_index("ix_acts_at_ms", "acts", ["at_ms"])


def downgrade() -> None:
    op.drop_table("acts")
    op.drop_index("ix_usage_lines_user_id_at_ms", table_name="usage_lines")
    # What is left of a month stays, and is for good.
    op.execute("UPDATE budgets SET limit_micro_eur = limit_micro_eur + spent_before_micro_eur")
    for name in ("spent_before_micro_eur", "renews_at", "time_zone"):
        op.drop_column("budgets", name)
    # For older code they would be valid for ever.
    op.execute("UPDATE api_keys SET revoked_at = expires_at WHERE expires_at IS NOT NULL AND revoked_at IS NULL")
    op.drop_column("api_keys", "expires_at")
