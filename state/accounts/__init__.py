"""Accounts of callers: organisations, their users and their API keys.

authentication.py     an `Authorization` header to a Caller, with a cache; what `GET /me` says of one
client_secrets.py     what stands for a key in browsers, for minutes
api_keys.py           rows of keys
organisations.py      rows of organisations, users and spend limits
acts.py               rows of what operators did
demo.py               the first key of an embedded server
"""
