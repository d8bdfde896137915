"""Designers of voices, one file each, all a `DesignAdapter`. They never import each other.

adapter.py      what all share: attempts that are spoken, measured and judged, and the best of them
solving.py      which setting of a voice comes to a wanted pitch, from what was measured so far
palette.py      which of Kokoro's styles fit an order; styles.toml says what each sounds like
kokoro.py       mixtures of those; espeak-ng speaks in the languages that Kokoro lacks
qwen.py         Qwen3-TTS VoiceDesign: voices from descriptions

designer = models.load(catalog.voice_design["qwen3-tts"])
made = await designer.design(DesignJob("Good morning.", "en", ...))       # made.f0_hz was measured in made.clip
"""
