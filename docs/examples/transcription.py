"""Speech to text: what is said, when, and as subtitles.

Speaks a recording first, so that the words are known, and counts how many came back. Bring a file of your own: any
format that plays in a browser will do.
"""

# %% The graph of `make serve`. On a cluster, `RAY_AUTH_TOKEN` takes the place of the file.
import os

os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN_PATH", "var/ray_token")

import re
from difflib import SequenceMatcher
from pathlib import Path

from contract.transcription.transcript import plain
from graph import connect

g = connect()
ears = g.transcription["voxtral-mini-transcribe"]
folder = Path("var/examples")
folder.mkdir(parents=True, exist_ok=True)

# %% A recording of which every word is known.
SAID = (
    "Welcome to the meeting. First we look at the numbers of last month. "
    "Then Maria tells us about the new office. At noon there is soup and bread for everybody."
)
recording = folder / "meeting.wav"
recording.write_bytes(g.speech["supertonic-3"].speak(SAID, "en", "F2"))

# %% What is heard. A path is read here; for large files on a disk that all machines share, give its `file:` address.
transcript = ears.transcribe(recording, language="en")
print(transcript.text)


def words(text: str) -> list[str]:
    """In small letters, without punctuation."""
    return re.findall(r"\w+", text.lower())


heard = SequenceMatcher(None, words(SAID), words(transcript.text)).get_matching_blocks()
print(f"{sum(block.size for block in heard)} of {len(words(SAID))} words came back")

# %% Passages with their times, as they are heard: with a long recording one need not wait for its end.
for part in ears.stream(recording, language="en"):
    for segment in part.segments:
        print(f"{segment.start:6.2f} - {segment.end:6.2f} s  {segment.text}   [{part.done_s / part.duration_s:.0%}]")

# %% Words with their times.
timed = ears.transcribe(recording, language="en", timestamp_granularities=["word"])
for word in [word for segment in timed.segments for word in segment.words][:8]:
    print(f"{word.start:6.2f} - {word.end:6.2f} s  {word.text}")

# %% Subtitles.
subtitles, media_type = plain(g.transcription["whisper-large-v3"].transcribe(recording, response_format="srt"))
(folder / "meeting.srt").write_text(subtitles, encoding="utf-8")
print(*subtitles.split("\n\n")[:2], sep="\n\n")
