"""Parts of requests and replies beside the bodies that `contract` has.

events.py       streams of server-sent events, chats among them; reports of a wait
replies.py      streams of bytes; headers that name the model that answered
idempotency.py  a repeated POST is done once
forms.py        a form that brings a file
addresses.py    addresses that clients get, signed, under the public address; voices, with those of their samples
openapi.py      the OpenAPI document
"""
