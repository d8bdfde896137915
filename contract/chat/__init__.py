"""Chat completions.

request.py     bodies
sampling.py    fields that all wires of an LLM have: how tokens are drawn, where an answer ends
tools.py       tools, and which of them may be called
calls.py       calls of tools that a client repeats, and their arguments
schemas.py     forms that an answer must follow: which are compiled, and what that costs
thinking.py    how much a model thinks, in the terms of that model
usage.py       tokens of a call
engine.py      what crosses to an LLM: job, reply, batches of a stream
"""
