"""Chat completions. Spec 2 (Chat message) and 4.

request.py     bodies
tools.py       tools and answer formats
schemas.py     which JSON schemas are compiled, and what that costs
thinking.py    how much a model thinks, in the terms of that model
engine.py      what crosses to an LLM: job, reply, batches of a stream
"""
