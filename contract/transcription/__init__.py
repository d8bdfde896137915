"""Transcription.

request.py     requests, as a form or as JSON, and their plan for one model
uploads.py     tickets for recordings that are too long for a body
engine.py      job and protocol of a transcriber, segments, words; the codes of languages; how pieces join
transcript.py  the text of a recording, and every format of the answer
"""
