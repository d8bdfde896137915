"""A program for the environment of kokoro-onnx: a closed loop of one sentence, as the library's page calls it.

    python kokoro_peer.py FOLDER '{"text": "Hello.", "voice": "af_heart", "streams": 1, "seconds": 10}'

`FOLDER` holds the weights as they are published, `model.onnx`, and a file of styles for each voice. One line of JSON:
seconds until the first sound, until the whole, in all, and of sound. It knows nothing of ours.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from kokoro_onnx import Kokoro  # type: ignore[import-not-found]

STYLES = (-1, 1, 256)
"""A style for each number of phonemes."""


def loaded(folder: Path, voice: str) -> Kokoro:
    with tempfile.TemporaryDirectory() as room:
        voices = Path(room) / "voices.npz"
        styles: Any = {voice: np.fromfile(folder / "styles" / f"{voice}.bin", np.float32).reshape(STYLES)}
        np.savez(voices, **styles)
        return Kokoro(str(folder / "model.onnx"), str(voices))


async def loop(kokoro: Kokoro, asked: dict[str, Any]) -> dict[str, Any]:
    """All streams at once, each sentence after sentence, until the time is over."""
    first_s, whole_s, sound_s = [], [], 0.0

    async def stream(until_s: float) -> None:
        nonlocal sound_s
        while True:
            started_s, is_first = time.perf_counter(), True
            async for samples, rate in kokoro.create_stream(asked["text"], voice=asked["voice"], lang="en-us"):
                if is_first:
                    first_s.append(time.perf_counter() - started_s)
                is_first = False
                sound_s += len(samples) / rate
            whole_s.append(time.perf_counter() - started_s)
            if time.perf_counter() >= until_s:
                return

    await stream(0.0)  # the first run of a network takes longer
    first_s.clear()
    whole_s.clear()
    sound_s, started_s = 0.0, time.perf_counter()
    await asyncio.gather(*(stream(started_s + asked["seconds"]) for _ in range(asked["streams"])))
    return {
        "first_s": first_s,
        "whole_s": whole_s,
        "elapsed_s": time.perf_counter() - started_s,
        "sound_s": sound_s / len(whole_s),
    }


if __name__ == "__main__":
    folder, asked = Path(sys.argv[1]), json.loads(sys.argv[2])
    print(json.dumps(asyncio.run(loop(loaded(folder, asked["voice"]), asked))))
