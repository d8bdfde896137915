"""Transcription. Spec 2 (Upload ticket, Transcription result), 4, 7 (Transcription, Upload tickets) and 8.

request.py     what a request may say, as a form or as JSON, and what each model makes of it
languages.py   the languages that Whisper knows, and other spellings of them
uploads.py     tickets for recordings that are longer than a body may be
engine.py      what crosses to an engine: job, segments, words
transcript.py  what was heard, and every form in which it is answered
subtitles.py   srt and vtt
"""
