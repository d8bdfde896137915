"""Designers of voices, one file each, all a `DesignAdapter`. They never import each other.

adapter.py      what all share: attempts that are spoken, measured and judged, and the best of them
palette.py      which of Kokoro's styles fit an order; styles.toml says what each sounds like
kokoro.py       mixtures of those, solved for a pitch; espeak-ng speaks the languages that Kokoro lacks
qwen.py         Qwen3-TTS VoiceDesign: voices from descriptions

designer = models.load(catalog.voice_design["qwen3-tts"])
designed = await designer.design(DesignJob(text="Good morning.", language="en", ...))  # f0_hz was measured in its clip
"""
