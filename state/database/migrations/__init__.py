"""Steps of the schema, forwards and backwards.

env.py        what Alembic runs for every step
versions/     one file per step
"""
