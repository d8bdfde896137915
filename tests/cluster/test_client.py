"""`graph.connect()`: a researcher's way in, from a process of its own."""

import os
import subprocess
import sys

import pytest

from tests.cluster.conftest import ROOT, Server

pytestmark = pytest.mark.cluster

SCRIPT = """
import sys
from pathlib import Path
from graph import connect
g = connect()
reply = g.chat["smollm2-135m-instruct"].complete("Name the capital of France.", temperature=0, max_tokens=32)
assert "Paris" in reply.body["choices"][0]["message"]["content"], reply
batches = list(g.chat["smollm2-135m-instruct"].stream("Say hello.", max_tokens=4))
assert batches[-1].completion_tokens > 0, batches
vectors = g.embeddings["all-minilm-l6-v2"].embed(["one", "two"])
assert vectors.shape == (2, 384) and vectors.dtype == "float32"
wav = g.speech["supertonic-3"].speak("Good morning.", "en", voice="M1")
assert wav.startswith(b"RIFF"), wav[:20]
assert list(g.speech["supertonic-3"].stream("Good morning.", "en"))[-1].seconds > 0
transcriber, memo = g.transcription["voxtral-mini-transcribe"], Path(sys.argv[1])
memo.write_bytes(wav)
assert "morning" in transcriber.transcribe(memo, language="en").text.lower()
*_, last = transcriber.stream(wav, language="en")
assert last.done_s == last.duration_s > 0
made = g.voice_design["qwen3-tts"].design("m", age_years=48, language="en", target_hz=110, seed=1)
assert made.in_band and 100 < made.f0_hz < 120 and made.recipe, made.f0_hz
assert len(g.rerank["all-minilm-l6-v2-cosine"].rerank("a", ["b", "c"]).scores) == 2
"""


def test_typed_handles_reach_every_engine(server: Server) -> None:
    command = [sys.executable, "-c", SCRIPT, str(server.home / "memo.wav")]
    subprocess.run(command, cwd=ROOT, env=os.environ | server.token, check=True, timeout=120)
