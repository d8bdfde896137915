"""Voice design. Spec 2 (Voice design), 3, 4 and 7.

engine.py      what crosses to a designer: job, voice
draft.py       the states of a draft, and what an order decided
"""
