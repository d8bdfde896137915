"""What we promise: the spec as code. Pure; imports pydantic only.

errors.py       section 7      every error, one row each
limits.py       section 8      numbers that hold for all models
access.py       section 5      scopes, plans, the caller behind a key
catalog.py      section 2      types of the catalogue: what a model's stanza may say
body.py         section 4      from bytes to a validated request, or one clear 400
chat.py chat_tools.py embeddings.py rerank.py     section 4, one file per endpoint
decisions.py decision_answers.py decision_runtimes.py     bodies, the mathematics of answers, what was measured
decision_orders.py             choices read in both orders of their options
decision_wires.py              the shapes that clients of other decision APIs send
"""
