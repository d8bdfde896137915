"""Run by Alembic for every step: hands it the connection of `state.database.migrate`."""

from alembic import context

from state.database.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # All steps or none, on SQLite too.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
