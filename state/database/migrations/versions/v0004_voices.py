"""Voices of organisations."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "voices",
        sa.Column("id", Number, primary_key=True),
        sa.Column("org_id", Number, sa.ForeignKey("organisations.id"), nullable=False),
        sa.Column("slug", sa.Text, nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("gender", sa.Text, nullable=False),
        sa.Column("age_group", sa.Text, nullable=False),
        sa.Column("primary_language", sa.Text, nullable=False),
        sa.Column("description", sa.Text),
        sa.Column("transcript", sa.Text, nullable=False),
        sa.Column("clip_blob", sa.Text, nullable=False),
        sa.Column("sample_blob", sa.Text, nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("removed_at", Number),
        sa.UniqueConstraint("org_id", "slug"),
        sa.CheckConstraint("gender IN ('m', 'f')", name="gender"),
        sqlite_strict=True,
    )
    op.create_index("ix_voices_removed_at", "voices", ["removed_at"])


def downgrade() -> None:
    op.drop_table("voices")
