"""One file per step. A step that was released is never edited: databases have taken it.

v0001_accounts.py     organisations, users, keys, budgets
v0002_money.py        reservations and usage lines
v0003_replies.py      answers kept for `Idempotency-Key`
v0004_voices.py       voices of organisations
v0005_tickets.py      tickets for uploads
v0006_drafts.py       drafts of voices, and how designed voices are spoken
v0007_survival.py     what a request has used so far, keyed digests, quotas of stored answers
v0008_quantities.py   what was used, by unit
v0009_voices.py       drops the mark of voices that were being removed
"""
