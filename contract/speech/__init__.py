"""Speech.

request.py     bodies of POST /audio/speech
routing.py     choice of engine, voice and language
tags.py        tags inside a text, such as `<breath>`
voices.py      voices, the right to choose them, and their entries in the list
verdict.py     speech verification; transcribers.toml: measured quality of transcribers by voice and language
engine.py      job and protocol of an engine, clips, blocks of audio
"""
