"""Kokoro-82M: a small network that speaks from phonemes, in any mixture of its styles. For what speaks and designs.

voices.py       a voice: weights of styles, and its counterpart in espeak-ng
styles.py       the tables of styles, and their mixtures; measured.toml: how high and how loud each is
phonemes.py     text to the phonemes that the network was trained with, read by espeak-ng
speaker.py      text to sound

kokoro = Kokoro(folder, threads=2)
samples = kokoro.speak("Good morning.", "en", KokoroVoice(styles={"af_heart": 0.7, "af_bella": 0.3}))
"""
