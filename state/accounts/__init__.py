"""Who may call: organisations, their users and their API keys. Spec 5.

authentication.py     an `Authorization` header to a Caller; what `GET /me` says of one
keys.py               an API key as text: made, read, masked
api_keys.py           rows of keys
organisations.py      rows of organisations, users and spend limits
cache.py              callers and refusals of the last 5 seconds
demo.py               the first key of an embedded server
"""
