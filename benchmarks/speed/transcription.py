"""What the graph adds to transcription, and how it bears long recordings, large bodies and many uploads.

    python -m benchmarks.speed.transcription
    python -m benchmarks.speed.transcription --rounds 3 --minutes 15 --only speed long uploads bodies

speed      clips of 5 and 60 s: the adapter in a process of its own, and the whole graph (HAProxy, keys, limits,
           bills), in turns; the adapter also without batches; and faster-whisper on the same weights, as its page
           calls it: eight bits, five beams, silence passed over, with batches and without
long       one recording of `--minutes`, uploaded under a ticket: seconds until its transcript, memory of the ingress
uploads    8 uploads of 100 MiB at once: memory of the ingress, MB/s
bodies     10 requests a second with 4.5 MiB each, over an engine that answers at once: how long a small request beside
           them takes, which bounds the lag of the event loop from above

Clips are spoken by the embedded speech engine, so what is heard is easy and the figures are those of such speech.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
import wave
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks.servers import ROOT, Server, parlance, working_folder
from benchmarks.speed.load import cuts_ms
from benchmarks.speed.speech import ingress_rss_mib
from contract.limits import RECORDING_BODY_BYTES, UPLOAD_BYTES
from contract.speech.engine import SpeechJob
from contract.transcription.engine import TranscriptionJob
from models.weights.store import ensure

MODEL = "whisper-large-v3"
CLIPS_S = (5, 60)
UPLOADS = 8
BODIES_PER_S = 10
PATH = "/v1/audio/transcriptions"
PARTS = ("speed", "long", "uploads", "bodies")
SENTENCES = {
    "The morning train to the coast leaves from platform nine at half past seven.": "F1",
    "Nobody had told the gardener that the old well behind the greenhouse was dry.": "M1",
    "She bought three oranges, a loaf of bread and a postcard with a lighthouse on it.": "F2",
    "If the bridge is closed again, we will have to take the ferry across the river.": "M2",
    "The museum keeps its oldest maps in a cool room without any windows at all.": "F3",
    "My uncle repairs clocks, although he is never on time for dinner himself.": "M3",
    "After the storm, two fishermen found a piano lying upside down on the beach.": "F4",
    "Please send the signed contract to our office before the end of next month.": "M4",
    "The recipe says forty minutes, but this oven usually needs a little longer.": "F5",
    "Children from the village school painted the long wall blue, green and yellow.": "M5",
}
"""With their voices. Different ones, because Whisper listens again to what repeats itself."""


# --- recordings -------------------------------------------------------------------------------------------------------


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
    made = [asyncio.run(engine.speak_whole(SpeechJob(text, "en", voice))).data for text, voice in SENTENCES.items()]
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


# --- speed ------------------------------------------------------------------------------------------------------------


async def drive_adapter(recording: bytes, options: dict[str, Any]) -> dict[str, float]:
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
    return {"took_s": took_s, "duration_s": duration_s}


def measure_adapter(clip: Path, **options: Any) -> tuple[float, float]:
    """Seconds that it took, and that it lasts."""
    return told_by("--adapter", str(clip), json.dumps(options))


def measure_library(clip: Path, *, batches: bool) -> float:
    """Seconds that faster-whisper took."""
    return told_by("--library", str(clip), json.dumps(batches))[0]


def told_by(*arguments: str) -> tuple[float, float]:
    """What this program says in another process: seconds that it took, and that the recording lasts."""
    command = [sys.executable, "-m", "benchmarks.speed.transcription", *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    results = json.loads(output.splitlines()[-1])
    return results["took_s"], results["duration_s"]


def drive_library(clip: Path, batches: bool) -> dict[str, float]:
    """One recording through faster-whisper alone, once it is warm."""
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    whisper = WhisperModel(str(ensure("whisper-base")), device="cpu", compute_type="int8")
    model: Any = BatchedInferencePipeline(model=whisper) if batches else whisper
    for _ in range(2):
        started_s = time.perf_counter()
        segments, about = model.transcribe(str(clip), language="en", beam_size=5, vad_filter=True)
        list(segments)
        took_s = time.perf_counter() - started_s
    return {"took_s": took_s, "duration_s": about.duration}


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
    """A table."""
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


# --- uploads ----------------------------------------------------------------------------------------------------------


async def ticket(client: httpx.AsyncClient, server: Server, size: int, mime: str = "audio/ogg") -> dict[str, str]:
    """A ticket for so many bytes."""
    reply = await client.post(
        f"{server.url}/v1/audio/uploads", headers=server.headers, json={"mime": mime, "size": size, "model": MODEL}
    )
    reply.raise_for_status()
    results: dict[str, str] = reply.json()
    return results


async def long(server: Server, recording: bytes) -> None:
    """A line."""
    before = ingress_rss_mib()
    async with httpx.AsyncClient(timeout=600) as client:
        made = await ticket(client, server, len(recording))
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
        f"{len(results['text'].split())} words in {len(results['segments'])} segments; "
        f"ingress {before:.0f} MiB before, {ingress_rss_mib():.0f} after",
        flush=True,
    )


async def uploads(server: Server) -> None:
    """A line."""
    block = os.urandom(1 << 20)

    async def body() -> AsyncIterator[bytes]:
        for _ in range(UPLOAD_BYTES >> 20):
            yield block

    async def upload(client: httpx.AsyncClient) -> None:
        made = await ticket(client, server, UPLOAD_BYTES)
        headers = {"content-type": made["content_type"], "content-length": str(UPLOAD_BYTES)}
        (await client.put(made["upload_url"], content=body(), headers=headers)).raise_for_status()

    before = most = ingress_rss_mib()
    started_s = time.perf_counter()
    async with httpx.AsyncClient(timeout=600) as client:
        sending = asyncio.gather(*(upload(client) for _ in range(UPLOADS)))
        while not sending.done():
            most = max(most, ingress_rss_mib())
            await asyncio.sleep(0.1)
        await sending
    rate = UPLOADS * UPLOAD_BYTES / 1e6 / (time.perf_counter() - started_s)
    print(
        f"\n{UPLOADS} uploads of 100 MiB: ingress {before:.0f} MiB before, {most:.0f} at most; {rate:.0f} MB/s",
        flush=True,
    )


# --- large bodies -----------------------------------------------------------------------------------------------------


async def bodies(server: Server, seconds: float) -> None:
    """A table: a small request alone, and beside large bodies."""
    file = {"file": ("memo.ogg", os.urandom(RECORDING_BODY_BYTES))}
    form = httpx.Request("POST", server.url + PATH, headers=server.headers, files=file)
    data = form.read()
    async with httpx.AsyncClient(timeout=60) as client:

        async def send() -> int:
            return (await client.post(server.url + PATH, headers=dict(form.headers), content=data)).status_code

        await send()  # wakes the engine
        alone = await probe(server, seconds)
        beside = asyncio.create_task(probe(server, seconds))
        requests: list[asyncio.Task[int]] = []
        while not beside.done():
            requests.append(asyncio.create_task(send()))
            await asyncio.sleep(1 / BODIES_PER_S)
        failed = sum(status != 200 for status in await asyncio.gather(*requests))
    print("\n| a small request | p50, p95, p99 ms |\n|---|---|")
    for name, results in (
        ("alone", alone),
        (f"beside {len(requests) / seconds:.0f} bodies of 4.5 MiB a second", await beside),
    ):
        print(f"| {name} | {', '.join(f'{cut:.1f}' for cut in results)} |")
    print(f"\n{failed} of {len(requests)} large requests failed", flush=True)


async def probe(server: Server, seconds: float) -> tuple[float, ...]:
    """p50, p95, p99 of a small request every 20 ms, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.speed.transcription", "--probe", server.url, str(seconds)]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    output, _ = await child.communicate()
    return tuple(json.loads(output))


def drive_probe(url: str, seconds: float) -> tuple[float, ...]:
    """What `probe` runs."""
    took_s: list[float] = []
    with httpx.Client() as client:
        ends_s = time.perf_counter() + seconds
        while (started_s := time.perf_counter()) < ends_s:
            client.get(f"{url}/healthz")
            took_s.append(time.perf_counter() - started_s)
            time.sleep(0.02)
    return cuts_ms(took_s)


# --- all --------------------------------------------------------------------------------------------------------------


def compare(options: argparse.Namespace) -> None:
    """Prints each part when it is known."""
    with working_folder("transcription-") as folder:
        if set(options.only) - {"bodies"}:
            with parlance(folder) as server:
                if "speed" in options.only:
                    speed(server, folder, options.rounds)
                if "long" in options.only:
                    recording = spoken(options.minutes * 60, folder / "long.opus").read_bytes()
                    asyncio.run(long(server, recording))
                if "uploads" in options.only:
                    asyncio.run(uploads(server))
        if "bodies" in options.only:
            with parlance(folder, "benchmarks/speed/instant.yaml") as server:
                asyncio.run(bodies(server, options.seconds))


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=15, help="of the long recording")
    parser.add_argument("--seconds", type=float, default=20, help="of large bodies")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--adapter", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--library", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--probe", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.library:
        print(json.dumps(drive_library(Path(options.library[0]), json.loads(options.library[1]))))
        return
    if options.adapter:
        print(
            json.dumps(
                asyncio.run(drive_adapter(Path(options.adapter[0]).read_bytes(), json.loads(options.adapter[1])))
            )
        )
    elif options.probe:
        print(json.dumps(drive_probe(options.probe[0], float(options.probe[1]))))
    else:
        compare(options)
        print(f"\nload average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
