"""Scripts for researchers, one per capability, in cells (`# %%`) that editors run one by one.

    chat.py             questions, streams, many at a time, answers of a given form
    search.py           embeddings find, a reranker sorts
    speech.py           files and streams, voices and languages
    transcription.py    words with their times, subtitles
    voice_design.py     a voice of a description, and what it says then
    decisions.py        probabilities over given answers, and when not to trust them
    data_set.py         a CSV or JSONL file through a language model; it resumes
    batch.py            a data set through the same models by Ray Data, without the graph

All but the last call a graph that runs on this machine: `make serve`, then `.venv/bin/python -m docs.examples.chat`.
The last one needs `make setup-batch`, and no graph.
"""
