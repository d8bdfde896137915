"""POST /responses: OpenAI's newer wire over chat. A body becomes a chat request, a chat answer becomes a response.

input.py       what a conversation is made of: items, as messages of a chat
calls.py       items that are calls of tools, and what came of them
parts.py       pieces of a message or of a tool's output
tools.py       tools, the choice between them, the form of the answer
namespaces.py  what models call the tools of a namespace, and back
request.py     bodies; what is refused because nothing is kept here
output.py      items of an answer
reply.py       a whole answer as a response
events.py      a streamed answer as events
written.py     logprobs of a stream, as JSON that is written once
naming.py      errors of a chat in the names of this wire
"""
