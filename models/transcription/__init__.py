"""Transcribers, one file each, all a `TranscriptionAdapter`. They never import each other.

adapter.py            what all share: the file is fetched, decoded in a sandbox, and listened to in turn
voice_activity.py     where in a recording somebody speaks, and how a long one is cut
faster_whisper.py     Whisper by CTranslate2, on a CPU or a GPU
segments.py           its words made into segments
whisper_doubts.py     when not to believe them
whisper_weights.py    what it loads, and what it refuses to
voxtral.py            Voxtral on vLLM
passages.py           passages of speech, of which it hears one at a time
mistral.py            an HTTP API: Mistral's, or a server of one's own
answers.py            what such an API answers, made into segments

engine = models.load(catalog.transcription["whisper-large-v3"])
async for part in engine.transcribe(TranscriptionJob(wav_bytes)): print(part.segments)
"""
