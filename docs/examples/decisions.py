"""Decisions: probabilities over answers that are given, and when an answer should not be trusted.

Shows a pack of questions that the server keeps, questions of one's own, what reading options in both orders tells, and
a policy that withholds what is not sure enough. No text is generated.
"""

# %% The graph of `make serve`. On a cluster, `RAY_AUTH_TOKEN` takes the place of the file.
import os

os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN_PATH", "var/ray_token")

from graph import connect

g = connect()
model = g.decisions["decision-v1"]

# %% How good is it? Every runtime is measured on labelled examples before it answers.
measured = model.measured()
if measured:
    print(f"{measured.accuracy:.0%} of {measured.questions} example questions right, {measured.latency_ms:.0f} ms each")

# %% A pack of questions that the server keeps: its wording is versioned.
print("presets:", *g.catalog.presets)
TICKETS = [
    "I was charged twice for my March invoice. Please refund the second payment.",
    "Since this morning every page shows error 500 and nobody here can work.",
    "Thank you, the refund has arrived. No answer needed.",
]
for ticket, call in [(ticket, model.submit(ticket, "ticket-routing-v1")) for ticket in TICKETS]:
    answers = call.result()
    summary = ", ".join(
        f"{name}: {answer['value']} ({answer['max_probability']:.2f})" for name, answer in answers.items()
    )
    print(f"\n{ticket}\n  {summary}")

# %% A question of one's own, with the whole distribution. Descriptions of options help small models most.
QUESTION = {
    "tone": {
        "type": "choice",
        "instructions": "What is the tone of this message?",
        "options": [
            {"id": "friendly", "description": "kind words, thanks, a compliment"},
            {"id": "neutral", "description": "a question or a piece of information"},
            {"id": "angry", "description": "a complaint, the writer is annoyed and has waited too long"},
        ],
    }
}
MESSAGE = "This is the third time I write to you, and still nobody has answered!"
tone = model.decide(MESSAGE, QUESTION)["tone"]
print(f"\n{MESSAGE}")
for option, probability in tone["probabilities"].items():
    print(f"  {option:9} {'#' * round(40 * probability)} {probability:.2f}")

# %% Models favour some places in a list. Read in both orders, the answer says how much that changed.
both = model.decide(MESSAGE, QUESTION, order="both")["tone"]
print(f"the order of the options moved a probability by {both['order']['max_difference']:.2f} at most")

# %% A policy: below the threshold an answer is there, but marked to be withheld.
for threshold in (0.2, 0.99):
    answer = model.decide(MESSAGE, QUESTION, policy={"mode": "threshold", "threshold": threshold})["tone"]
    print(f"threshold {threshold}: {answer['value']}, withheld: {answer['abstain']} {answer['abstain_reasons']}")
