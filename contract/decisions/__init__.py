"""Decisions: closed questions about a text, answered with probabilities.

questions.py   questions, the policy that releases their answers, packs of questions that the server stores
decision.py    a decision, independent of the wires, and code that the wires share
native.py      this API's own wire, and the choice of the wire of a body of POST /decisions
openai.py      OpenAI's wire
systemone.py   System One's wire
engine.py      job and protocol of a scorer, its readings and its measurement
answers.py     from readings to answers
"""
