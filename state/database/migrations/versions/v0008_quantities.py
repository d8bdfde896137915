"""What a request has used, by unit, so that its cost can be computed again.

Only adds, and older code leaves it empty.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
compatible_since = "0007"
"""The oldest code that can work with this schema."""


def upgrade() -> None:
    op.add_column("reservations", sa.Column("used_quantities", sa.Text))
    op.add_column("usage_lines", sa.Column("quantities", sa.Text))


def downgrade() -> None:
    op.drop_column("usage_lines", "quantities")
    op.drop_column("reservations", "used_quantities")
