"""Kokoro-82M: a small network that speaks from phonemes, in any mixture of its styles.

styles.py       styles and voices, which are mixtures of them; measured.toml: how high and how loud each style is
phonemes.py     text to the phonemes that the network was trained with, read by espeak-ng
speaker.py      text to sound
network.py      phonemes to sound: the network, in bfloat16 where the processor has it; converter.py cuts it at install

kokoro = Kokoro(folder, threads=2)
samples = kokoro.speak("Good morning.", "en", KokoroVoice(styles={"af_heart": 0.7, "af_bella": 0.3}))
"""
