"""Transcribers, one file each, all a `TranscriptionAdapter`. They never import each other.

adapter.py            what all share: the file is fetched, decoded in a sandbox, and then transcribed
voice_activity.py     where in a recording there is speech, and how a long one is cut
faster_whisper.py     Whisper by CTranslate2, on a CPU or a GPU
whisper.py            its model: how it is loaded, when its text is not to be believed, its words made into passages
voxtral.py            Voxtral on vLLM, passage by passage
mistral.py            an HTTP API: Mistral's, or a server of one's own
answers.py            what such an API answers, made into segments

engine = models.load(catalog.transcription["whisper-large-v3"])
async for part in engine.transcribe(TranscriptionJob(wav_bytes)): print(part.segments)
"""
