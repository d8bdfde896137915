"""Text-to-speech engines, one file each, all a `SpeechAdapter`. They never import each other.

adapter.py            what all engines share: threads, watermark, encoding, marks, signature
kokoro.py             Kokoro where it is understood, Pico, else espeak-ng: the engines of machines without a GPU
supertonic.py         ONNX, on a CPU or a GPU
cosyvoice.py          its official code; clones, styles, marks; cosyvoice_weights.py: its pickles as safetensors
qwen.py               Qwen3-TTS: stored voices, and clips of an organisation's own
mistral.py            an HTTP API of the provider's schema
expressive.py         tags and styles, for synthesizers that know neither
voices.py             stored voices: recordings that an engine imitates

engine = models.load(catalog.speech["supertonic-3"])
block = await engine.speak_whole(SpeechJob("Hello.", "en", voice="F1"))        # block.data is a WAV file
"""
