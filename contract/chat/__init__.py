"""Chat completions.

request.py     bodies
sampling.py    fields that all wires of an LLM share: sampling of tokens, end of an answer
tools.py       tools, the choice between them, and earlier calls of them that a client repeats
schemas.py     forms that an answer must follow, and the cost of compiling them
thinking.py    settings of a model's reasoning, in the terms of that model
usage.py       tokens of a call
engine.py      job and protocol of an LLM, its reply, and batches of a stream
"""
