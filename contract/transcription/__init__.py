"""Transcription.

request.py     what a request may say, as a form or as JSON, and what each model makes of it
uploads.py     tickets for recordings that are longer than a body may be
engine.py      what crosses to an engine: job, segments, words; the codes of languages
transcript.py  the text of a recording, and every form in which it is answered
"""
