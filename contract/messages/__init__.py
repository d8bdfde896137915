"""POST /messages: Anthropic's wire over chat. A body becomes a chat request, a chat answer becomes a message.

blocks.py       pieces of a message
tools.py        tools and the form of an answer
request.py      bodies
translation.py  a body as a chat request
reply.py        a chat reply as a message
events.py       a chat stream as the events of a message
errors.py       an error in this wire's shape
"""
