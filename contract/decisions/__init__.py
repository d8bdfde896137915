"""Decisions: closed questions about a text, answered with probabilities.

questions.py   questions, the policy that releases their answers, packs of questions that the server keeps
decision.py    a decision between the wires, and what the wires share
native.py      our own wire, and which wire a body of POST /decisions is in
openai.py      OpenAI's wire
input.py       what is judged on it, as text
systemone.py   System One's wire
engine.py      what crosses to a scorer: job, readings, measurement
answers.py     from readings to answers
"""
