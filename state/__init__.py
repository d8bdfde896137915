"""Persistent state: organisations, keys, rates, money, voices, drafts, tickets. No Ray, no HTTP.

open.py            open_state(home) -> State: all of it; whether the database was made under this secret
keys.py            API keys as text; the service's own secret, one derived key per purpose
accounts/          organisations, users, API keys; an `Authorization` header to a Caller
rates.py           requests per minute, concurrent streams; those of all replicas: shared_streams.py
shared_console.py  what replicas share of the console
billing/           reserve, top up, settle, void; usage lines
idempotency.py     one answer per `Idempotency-Key`; in SQL: replies.py
blobs/             bytes by name, in a folder or S3; signed addresses
facts.py           facts about the whole database, which replicas revise together
voices.py          voices of organisations
tickets.py         tickets for uploads
verdicts.py        verdicts on speech, for ten minutes
drafts/            drafts of voices, until they are adopted or end
database/          run(transaction) over SQLite or PostgreSQL; tables and migrations
cli/               python -m state, by way of __main__.py
"""

from state.open import State, open_state

__all__ = ["State", "open_state"]
