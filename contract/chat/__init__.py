"""Chat completions. Spec 2 (Chat message) and 4.

request.py     bodies; tools.py: tools, answer formats, bounds of JSON schemas
engine.py      what crosses to an LLM: job, reply, batches of a stream
"""
