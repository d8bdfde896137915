"""Quality: whether answers are right, and whether they stay the same. Speed is measured in `benchmarks`.

__main__.py        python -m benchmarks.quality NAME

chat.py            what 8 bits take from a chat model, and how far its answers, JSON and calls can be believed
decisions.py       how often decision models are right, on labelled examples; verdicts.py
similarity.py      fits the reader that compares texts, on a set of its own
injections.py      how often an order inside a state changes an answer
transcription.py   how many words are wrong when our own speech is written down, by language
spoken.py          how surely our ears find out that a voice did not say its text
live.py            whether live ears account for every second; hour.py makes the conversation, live_session.py plays it,
                   live_score.py judges

examples/          labelled states, and what reads them
results/           tables with date and machine, one page for each evaluation

All but `live`, which plays through the socket of a running graph, load a model as a replica does and call its adapter:
no Ray, no HTTP, no keys. `docs/evaluation.md` explains them.
"""
