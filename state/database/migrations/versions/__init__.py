"""One file per step.

v0001_accounts.py     organisations, users, keys, budgets
v0002_money.py        reservations and usage lines
v0003_replies.py      answers kept for `Idempotency-Key`
v0004_voices.py       voices of organisations
"""
