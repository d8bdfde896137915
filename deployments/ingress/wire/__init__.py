"""What is read from requests and written in replies, beside the bodies that `contract` has.

replies.py        streams of bytes, server-sent events, chats in events; headers that name the model that answered
forms.py          a form that brings a file
addresses.py      addresses that clients get: signed, under the public address
voice_objects.py  a voice as it is answered
openapi.py        the OpenAPI document
"""
