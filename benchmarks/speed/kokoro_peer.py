"""A program for the environment of kokoro-onnx: a closed loop of one sentence, as the library's page calls it.

    python -m benchmarks.speed.kokoro_peer FOLDER '{"text": "Hello.", "voice": "af_heart", "streams": 1, "seconds": 10}'

`FOLDER` holds the weights as they are published, `model.onnx`, and a file of styles for each voice. It prints the
figures of `sound_loop` as one line of JSON.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
from kokoro_onnx import Kokoro  # type: ignore[import-not-found]

from benchmarks.speed.sound_loop import sound_loop

STYLES = (-1, 1, 256)
"""A style for each number of phonemes."""


def loaded(folder: Path, voice: str) -> Kokoro:
    with tempfile.TemporaryDirectory() as room:
        voices = Path(room) / "voices.npz"
        styles: Any = {voice: np.fromfile(folder / "styles" / f"{voice}.bin", np.float32).reshape(STYLES)}
        np.savez(voices, **styles)
        return Kokoro(str(folder / "model.onnx"), str(voices))


if __name__ == "__main__":
    folder, asked = Path(sys.argv[1]), json.loads(sys.argv[2])
    kokoro = loaded(folder, asked["voice"])

    async def speak() -> AsyncIterator[float]:
        sound_s = 0.0
        async for samples, rate in kokoro.create_stream(asked["text"], voice=asked["voice"], lang="en-us"):
            sound_s += len(samples) / rate
            yield sound_s

    print(json.dumps(asyncio.run(sound_loop(speak, asked["streams"], asked["seconds"]))))
