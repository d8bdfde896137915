"""Drafts of voices, and how designed voices are spoken."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "drafts",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("org_id", Number, sa.ForeignKey("organisations.id"), nullable=False),
        sa.Column("user_id", Number, sa.ForeignKey("users.id")),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("line", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("worker", sa.Text),
        sa.Column("work_at", Number),
        sa.Column("failures", Number, nullable=False),
        sa.Column("made", sa.Text),
        sa.Column("cost_micro_eur", Number, nullable=False),
        sa.Column("voice_slug", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("ends_at", Number, nullable=False),
        sa.Column("sweep_at", Number),
        sa.CheckConstraint("state IN ('pending', 'ready', 'adopted', 'discarded', 'failed')", name="state"),
        sqlite_strict=True,
    )
    op.create_index("ix_drafts_org_id_created_at", "drafts", ["org_id", "created_at"])
    op.create_index("ix_drafts_work_at", "drafts", ["work_at"])
    op.create_index("ix_drafts_sweep_at", "drafts", ["sweep_at"])
    op.add_column("voices", sa.Column("recipe", sa.Text))
    op.add_column("voices", sa.Column("runtime", sa.Text))


def downgrade() -> None:
    op.drop_column("voices", "runtime")
    op.drop_column("voices", "recipe")
    op.drop_table("drafts")
