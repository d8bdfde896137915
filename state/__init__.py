"""What the service remembers: organisations, keys, rate limits, money. No Ray, no HTTP.

open.py          open_state(home) -> State: all of it, in the process that needs it
accounts.py         an `Authorization` header to a Caller          keys.py, api_keys.py, organisations.py, recent.py
rates.py            requests per minute, streams at one time
ledger.py           reserve, top up, settle, void                  postings.py, usage.py
idempotency.py      one answer per `Idempotency-Key`
blobs.py            bytes by name                               blob_folder.py, blob_s3.py, signatures.py
voices.py           of organisations
demo.py             the first key of an embedded server
secrets.py          the service's own secret, one derived key per purpose
database.py         run(transaction) over SQLite or PostgreSQL     sqlite.py, postgres.py, tables.py, migrate.py
cli/                python -m state
"""

from state.open import State, open_state

__all__ = ["State", "open_state"]
