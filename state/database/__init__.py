"""Rows: one small interface over SQLite and PostgreSQL.

base.py         what a database does: the protocol `Database`; its time
open.py         the database that an address names, as it is or migrated
sqlite.py       one writer thread, several transactions in one commit
driver.py       which SQLite opens a file, and with which journal
postgres.py     a pool of connections
tables.py       the schema as SQLAlchemy tables
migrate.py      brings the schema to a revision, and refuses one that this code cannot use
migrations/     the revisions
"""
