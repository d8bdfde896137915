"""Speech.

request.py     bodies of POST /audio/speech
routing.py     which engine speaks, with which voice, in which language
tags.py        tags inside a text, such as `<breath>`
voices.py      what a voice is, who may choose it, how it is listed
verdict.py     whether a voice said its text, by our own ears; ears.toml: where they are good enough
engine.py      what crosses to an engine: job, clip, blocks of sound
"""
