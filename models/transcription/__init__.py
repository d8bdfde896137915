"""Transcribers, one file each, all a `TranscriptionAdapter`. They never import each other.

adapter.py            what all share: the file is fetched, decoded in a sandbox, and listened to in turn
voice_activity.py     where in a recording somebody speaks
faster_whisper.py     Whisper by CTranslate2, on a CPU or a GPU
passages.py           a recording cut into passages of speech
voxtral.py            Voxtral on vLLM
mistral.py            an HTTP API: Mistral's, or a server of one's own
answers.py            what such an API answers, made into segments

engine = models.load(catalog.transcription["whisper-large-v3"])
async for part in engine.transcribe(TranscriptionJob(wav_bytes)): print(part.segments)
"""
