"""Text to speech: a file, a stream, voices and languages.

Shows how soon a stream can be heard, and how much faster than speech it is made. Sounds are written to var/examples.
"""

# %% The graph of `make serve`. On a cluster, `RAY_AUTH_TOKEN` takes the place of the file.
import os

os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN_PATH", "var/ray_token")

import time
from pathlib import Path

from contract.errors import ApiError
from graph import connect

g = connect()
speech = g.speech["supertonic-3"]
folder = Path("var/examples")
folder.mkdir(parents=True, exist_ok=True)

# %% Who speaks, and what: the catalogue knows. A voice belongs to one engine.
voices = [voice for voice in g.catalog.voices.values() if voice.provider == speech.model.provider]
print("voices:", *(f"{voice.slug} ({voice.gender})" for voice in voices))
print("languages:", *speech.model.languages)

# %% A file: bytes of a WAV, or of another format that the engine has.
(folder / "morning.wav").write_bytes(speech.speak("Good morning. Did you sleep well?", "en", "F1"))
print("wrote", folder / "morning.wav")

# %% The same sentence by three voices.
for voice in voices[:3]:
    sound = speech.speak("I would like a cup of tea, please.", "en", voice.slug)
    (folder / f"tea-{voice.slug}.wav").write_bytes(sound)
    print(f"{voice.slug}: {len(sound) // 1024} KiB")

# %% Languages: name one, or let it be found in the text.
for text in ("Guten Tag, wie geht es Ihnen?", "¿Dónde está la biblioteca de la universidad?"):
    (folder / f"{text[:5].strip('¿')}.wav").write_bytes(speech.speak(text))
    print("spoken:", text)

# %% A stream: it can be heard long before all of it is made.
STORY = "The storm came at night. By morning the harbour was quiet again, and the boats lay in the sun. Nobody spoke."
started, first_s, data = time.perf_counter(), None, b""
for block in speech.stream(STORY, "en", "M1"):
    first_s = first_s or time.perf_counter() - started
    data += block.data
took_s = time.perf_counter() - started
(folder / "story.wav").write_bytes(data)
print(f"first sound after {first_s:.2f} s, {block.seconds:.1f} s of speech after {took_s:.1f} s")

# %% A wrong voice is told before any engine runs.
try:
    speech.speak("Hello.", "en", "nobody")
except ApiError as error:
    print(error.fault.code, "-", error.message)
