"""POST /responses: OpenAI's newer wire over chat. A body becomes a chat request, a chat answer becomes a response.

request.py     bodies, and fields that are refused because nothing is stored here
input.py       items of a conversation: messages, calls of tools and their outputs, as messages of a chat
tools.py       tools and their names in namespaces, the choice between them, the form of the answer
output.py      items of an answer, and their logprobs
reply.py       a whole answer as a response, a streamed one as events
"""
