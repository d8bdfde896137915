"""POST /messages: Anthropic's wire over chat. A body becomes a chat request, a chat answer becomes a message.

request.py      bodies: blocks of a message, tools, and the form of an answer
translation.py  a body as a chat request
reply.py        a chat reply as a message, a chat stream as the events of one
"""
