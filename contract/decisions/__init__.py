"""Decisions. Spec 2 (Decision result), 4 and 8 (decision engine).

questions.py      what can be asked; presets.py: packs of questions; policy.py: when an answer is released
decision.py       a decision between the wires, and what every wire does
native.py         our own wire; openai.py, systemone.py: those of other APIs; translation.py: what the two share
bodies.py         which wire a body of POST /decisions is in
engine.py         what crosses to a scorer: job, readings, measurement
answers.py        from readings to answers: probabilities, abstention; orders.py: choices read in both orders
models.py         GET /decisions/models and /decisions/presets
"""
