"""Chat completions. Spec 2 (Chat message) and 4.

request.py     bodies
tools.py       tools, which of them may be called, and calls
arguments.py   arguments of calls that a client repeats
forms.py       forms that an answer is made to follow
schemas.py     which JSON schemas are compiled, and what that costs
thinking.py    how much a model thinks, in the terms of that model
engine.py      what crosses to an LLM: job, reply, batches of a stream
"""
