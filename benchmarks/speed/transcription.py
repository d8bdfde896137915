"""Transcription through the graph beside the bare adapter and faster-whisper, and one long recording.

    python -m benchmarks.speed.transcription

speed      clips of 5 and 60 s, in turns: the adapter in a process of its own, also without batches, the whole graph,
           and faster-whisper on the same weights: eight bits, five beams, silence passed over, with batches and without
long       one recording of `--minutes`, uploaded under a ticket: seconds until its transcript

Clips are spoken by the embedded speech engine, so what is heard is easy and the figures are those of such speech.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import itertools
import json
import statistics
import time
import wave
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx

from benchmarks.quality.spoken import SENTENCES, VOICES
from benchmarks.servers import Server, parlance, printed_by, working_folder
from contract.speech.engine import SpeechJob
from contract.transcription.engine import TranscriptionJob
from models.weights.store import ensure

MODEL = "whisper-large-v3"
CLIPS_S = (5, 60)
PATH = "/v1/audio/transcriptions"
PARTS = ("speed", "long")


def spoken(seconds: float, into: Path) -> Path:
    """An Opus file of at least `seconds`, of sentences with pauses between them."""
    import numpy as np

    import configs
    import models
    from audio.encoding import Encoder
    from audio.provenance import Provenance

    catalog = configs.load("embedded")
    model = catalog.speech["supertonic-3"]
    engine = models.load(model)
    made = [
        asyncio.run(engine.speak_whole(SpeechJob(text, "en", voice))).data
        for text, voice in zip(SENTENCES["en"], VOICES, strict=False)
    ]
    engine.close()
    pause = np.zeros(model.sample_rate // 2, np.float32)
    encoder = Encoder("opus", model.sample_rate, Provenance("benchmark", 0), whole=True)
    done_s = 0.0
    for data in itertools.cycle(made):
        with wave.open(io.BytesIO(data)) as file:
            sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
        encoder.add(np.concatenate([sound, pause]))
        done_s += (len(sound) + len(pause)) / model.sample_rate
        if done_s >= seconds:
            break
    into.write_bytes(encoder.finish())
    return into


async def drive_adapter(recording: bytes, options: dict[str, Any]) -> tuple[float, float]:
    """One recording through the adapter alone, once it is warm."""
    import configs
    import models

    model = configs.load("embedded").transcription[MODEL]
    assert model.serving
    serving = model.serving.model_copy(update={"options": model.serving.options | options})
    engine = models.load(model.model_copy(update={"serving": serving}))
    duration_s = 0.0
    for _ in range(2):  # the first run of a network takes longer
        started_s = time.perf_counter()
        async for part in engine.transcribe(TranscriptionJob(recording, "en")):
            duration_s = part.duration_s
        took_s = time.perf_counter() - started_s
    engine.close()
    return took_s, duration_s


def measure_adapter(clip: Path, **options: Any) -> tuple[float, float]:
    """Seconds that it took, and that it lasts."""
    return told_by("--adapter", str(clip), json.dumps(options))


def measure_library(clip: Path, *, batches: bool) -> float:
    return told_by("--library", str(clip), json.dumps(batches))[0]


def told_by(*arguments: str) -> tuple[float, float]:
    """What this program says in another process: seconds that it took, and that the recording lasts."""
    took_s, duration_s = printed_by("benchmarks.speed.transcription", *arguments)
    return took_s, duration_s


def drive_library(clip: Path, batches: bool) -> tuple[float, float]:
    """One recording through faster-whisper alone, once it is warm."""
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    whisper = WhisperModel(str(ensure("whisper-base")), device="cpu", compute_type="int8")
    model: Any = BatchedInferencePipeline(model=whisper) if batches else whisper
    for _ in range(2):
        started_s = time.perf_counter()
        segments, about = model.transcribe(str(clip), language="en", beam_size=5, vad_filter=True)
        list(segments)
        took_s = time.perf_counter() - started_s
    return took_s, about.duration


def transcribed(server: Server, clip: Path) -> float:
    """Seconds of one request. Raises SystemExit if it fails."""
    while True:
        started_s = time.perf_counter()
        reply = httpx.post(
            server.url + PATH,
            headers=server.headers,
            data={"model": MODEL, "language": "en"},
            files={"file": (clip.name, clip.read_bytes())},
            timeout=400,
        )
        if reply.status_code == 200:
            return time.perf_counter() - started_s
        if reply.status_code != 503:
            raise SystemExit(f"transcription failed: {reply.text}")
        time.sleep(1)


def speed(server: Server, folder: Path, rounds: int) -> None:
    print(
        "| clip | adapter, x real time | without batches | whole graph | graph / adapter "
        "| faster-whisper in batches, alone | graph / the quicker |\n|---|---|---|---|---|---|---|"
    )
    for seconds in CLIPS_S:
        clip = spoken(seconds, folder / f"{seconds}.opus")
        took: defaultdict[str, list[float]] = defaultdict(list)
        transcribed(server, clip)
        for _ in range(rounds):
            took_s, lasts_s = measure_adapter(clip)
            took["adapter"].append(took_s)
            took["single"].append(measure_adapter(clip, batch_size=1)[0])
            took["graph"].append(transcribed(server, clip))
            took["batched library"].append(measure_library(clip, batches=True))
            took["library"].append(measure_library(clip, batches=False))
        of = {name: statistics.median(samples) for name, samples in took.items()}
        rates = {name: f"{lasts_s / median_s:.1f}" for name, median_s in of.items()}
        print(
            f"| {lasts_s:.0f} s | {rates['adapter']} | {rates['single']} | {rates['graph']} "
            f"| {of['graph'] / of['adapter']:.2f} | {rates['batched library']}, {rates['library']} "
            f"| {of['graph'] / min(of['batched library'], of['library']):.2f} |",
            flush=True,
        )


async def long(server: Server, recording: bytes) -> None:
    async with httpx.AsyncClient(timeout=600) as client:
        order = {"mime": "audio/ogg", "size": len(recording), "model": MODEL}
        reply = await client.post(f"{server.url}/v1/audio/uploads", headers=server.headers, json=order)
        made = reply.raise_for_status().json()
        headers = {"content-type": made["content_type"]}
        (await client.put(made["upload_url"], content=recording, headers=headers)).raise_for_status()
        started_s = time.perf_counter()
        body = {"upload_id": made["upload_id"], "model": MODEL, "language": "en", "response_format": "verbose_json"}
        reply = await client.post(server.url + PATH, headers=server.headers, json=body)
    took_s = time.perf_counter() - started_s
    if reply.status_code != 200:
        raise SystemExit(f"the long recording failed after {took_s:.0f} s: {reply.text}")
    results = reply.json()
    print(
        f"\n{results['duration'] / 60:.1f} minutes in {took_s:.0f} s ({results['duration'] / took_s:.1f} x real time), "
        f"{len(results['text'].split())} words in {len(results['segments'])} segments",
        flush=True,
    )


def compare(options: argparse.Namespace) -> None:
    with working_folder("transcription-") as folder, parlance(folder) as server:
        if "speed" in options.only:
            speed(server, folder, options.rounds)
        if "long" in options.only:
            recording = spoken(options.minutes * 60, folder / "long.opus").read_bytes()
            asyncio.run(long(server, recording))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=15, help="of the long recording")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--adapter", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--library", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.library:
        print(json.dumps(drive_library(Path(options.library[0]), json.loads(options.library[1]))))
    elif options.adapter:
        recording = Path(options.adapter[0]).read_bytes()
        print(json.dumps(asyncio.run(drive_adapter(recording, json.loads(options.adapter[1])))))
    else:
        compare(options)


if __name__ == "__main__":
    main()
