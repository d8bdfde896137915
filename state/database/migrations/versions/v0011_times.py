"""When a request came, and how long it waited, so that it can be played again.

Only adds, and older code leaves it empty.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
compatible_since = "0010"
"""The oldest code that can work with this schema."""

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    for name in ("took_ms", "waited_ms"):
        op.add_column("usage_lines", sa.Column(name, Number))


def downgrade() -> None:
    for name in ("waited_ms", "took_ms"):
        op.drop_column("usage_lines", name)
