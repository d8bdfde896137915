"""Voices that nobody has yet: from a description to a voice, and from that to speech.

Shows that pitch is measured in what was spoken, not believed; and that the same seed gives the same voice. Sounds are
written to var/examples.
"""

# %% The graph of `make serve`. On a cluster, `RAY_AUTH_TOKEN` takes the place of the file.
import os

os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN_PATH", "var/ray_token")

from pathlib import Path

from graph import connect

g = connect()
designer, speech = g.voice_design["qwen3-tts"], g.speech["qwen3-tts"]
folder = Path("var/examples")
folder.mkdir(parents=True, exist_ok=True)

# %% A description in plain words becomes fields of an order, by tables and without any engine.
heard = designer.suggest("a deep and calm voice of an elderly man, who reads audiobooks in English")
print(heard["reason"])
print(*heard["hints"], sep="\n")

# %% The voice. What an order leaves open is drawn by chance; with a seed, the same each time.
FIELDS = ("gender", "age_years", "language", "timbre", "character", "tempo", "use_case")
order = {field: heard[field] for field in FIELDS}  # type: ignore[literal-required]
voice = designer.design(**order, seed=7)
(folder / "voice.mp3").write_bytes(voice.sample)
print(f"{voice.f0_hz:.0f} Hz (half of the time {voice.p25_hz:.0f} to {voice.p75_hz:.0f} Hz)")
print(f"reached what was ordered: {voice.in_band}, after {voice.attempts_used} attempts")

# %% It says something else. An engine speaks a voice of its own runtime by its recipe, others imitate its clip.
(folder / "chapter.wav").write_bytes(speech.speak("Chapter one. It was a cold evening.", "en", voice))
print("wrote", folder / "chapter.wav")

# %% Pitch can be ordered, too: two calls at a time, and what was measured.
targets = {95: "m", 210: "f"}
calls = {
    hz: designer.submit(gender, seed=1, age_years=40, language="en", target_hz=hz)  # type: ignore[arg-type]
    for hz, gender in targets.items()
}
for hz, call in calls.items():
    print(f"ordered {hz} Hz, measured {call.result().f0_hz:.0f} Hz")
