"""What a request has used so far, keyed digests of bodies, quotas of stored answers, facts about the whole database.

Only adds, and what older code does not write has a default.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
compatible_since = revision
"""The oldest code that can work with this schema. Code before this step would not look here."""

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NONE = sa.text("0")


def upgrade() -> None:
    op.create_table(
        "facts",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sqlite_strict=True,
    )
    op.create_table(
        "reply_quotas",
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("replies", Number, nullable=False, server_default=NONE),
        sa.Column("body_bytes", Number, nullable=False, server_default=NONE),
        sa.Column("counted_at", Number, nullable=False, server_default=NONE),
        sqlite_strict=True,
    )
    op.add_column("reservations", sa.Column("used_micro_eur", Number, nullable=False, server_default=NONE))
    op.add_column("reservations", sa.Column("used_quantity", Number, nullable=False, server_default=NONE))
    op.add_column("reservations", sa.Column("used_unit", sa.Text))
    op.add_column("usage_lines", sa.Column("recovered", Number, nullable=False, server_default=NONE))
    op.add_column("replies", sa.Column("kid", sa.Text))


def downgrade() -> None:
    op.drop_column("replies", "kid")
    op.drop_column("usage_lines", "recovered")
    for name in ("used_unit", "used_quantity", "used_micro_eur"):
        op.drop_column("reservations", name)
    op.drop_table("reply_quotas")
    op.drop_table("facts")
