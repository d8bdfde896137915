"""Transcribers, one file each, all a `TranscriptionAdapter`. They never import each other.

adapter.py            what all share: the file is fetched, decoded in a sandbox, and listened to in turn
voice_activity.py     where in a recording somebody speaks, and how a long one is cut
passages.py           words to passages of a sentence or so
faster_whisper.py     Whisper by CTranslate2, on a CPU or a GPU
whisper_doubts.py     when not to believe it
whisper_weights.py    what it loads, and what it refuses to
voxtral.py            Voxtral on vLLM
mistral.py            an HTTP API of the provider's schema

engine = models.load(catalog.transcription["whisper-large-v3"])
async for part in engine.transcribe(TranscriptionJob(wav_bytes)): print(part.segments)
"""
