"""How near Kokoro's sound in bfloat16 is to float32, and whether it is understood as well as what is published.

    python -m benchmarks.quality kokoro
    python -m benchmarks.quality kokoro --keep var/spoken       keeps the sounds

Preset voices say sentences in each language: by the published network in 8 bits, and by the one that is cut, in
bfloat16 and in float32. The distance is the mean difference of two spectra on the mel scale, in decibels, where the
sentence is within 45 dB of its loudest: to float32, from each of the other two. Word errors are those of Whisper base.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import configs
from benchmarks.quality.transcription import errors
from contract.speech.engine import Clip
from deployments.ingress.verifier import wav
from models.kokoro.network import CutNetwork, PublishedNetwork
from models.kokoro.speaker import SAMPLE_RATE, Kokoro
from models.kokoro.styles import KokoroVoice, at_home
from models.weights import store

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float32]]

VOICES: dict[str, dict[str, list[str]]] = tomllib.loads(
    (Path(__file__).parent / "examples/voices.toml").read_text("utf-8")
)
SENTENCES = VOICES["kokoro"]
PUBLISHED, REFERENCE, CUT = "8 bits", "float32", "bfloat16"
WEIGHTS = "kokoro-82m"
WINDOW, HOP, BANDS, AUDIBLE_DB = 1024, 256, 80, 45


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", type=Path, help="folder for the sounds")


def run(options: argparse.Namespace) -> None:
    """Prints the table, a row when it is known."""
    kokoro, understood = Kokoro(store.ensure(WEIGHTS), 2), ears()
    networks = networks_of(store.ensure(WEIGHTS))
    voices = cycle(_presets())
    print(f"| language | {PUBLISHED}: dB mean, most | {CUT}: dB mean, most | loudness | as long | words wrong |")
    print("|---" * 6 + "|", flush=True)
    for language, texts in SENTENCES.items():
        spoken = []
        for number, text in enumerate(texts):
            voice = next(voices)
            voice = voice.model_copy(update={"styles": at_home(voice.styles, language)})
            sounds = said_by_all(kokoro, networks, text, language, voice)
            spoken.append((text, sounds))
            if options.keep:
                _write(options.keep, f"{language}-{number}", sounds)
        print(_row(language, spoken, understood), flush=True)


def networks_of(folder: Path) -> dict[str, CutNetwork | PublishedNetwork]:
    """The three ways to make the same sound."""
    return {
        PUBLISHED: PublishedNetwork(folder, 2),
        REFERENCE: CutNetwork(folder, 2, "float32"),
        CUT: CutNetwork(folder, 2, "bfloat16"),
    }


def said_by_all(
    kokoro: Kokoro, networks: dict[str, CutNetwork | PublishedNetwork], text: str, language: str, voice: KokoroVoice
) -> dict[str, Array]:
    """The sound of each network, by its name."""
    sounds = {}
    for name, network in networks.items():
        kokoro.network = network
        sounds[name] = kokoro.speak(text, language, voice)
    return sounds


def distance_db(sound: Array, other: Array) -> float:
    """The mean difference of the audible spectra of two sounds that are as long, but for some edge."""
    import numpy as np

    length = min(len(sound), len(other))
    first, second = mel_db(sound[:length]), mel_db(other[:length])
    audible = first.max(1) > first.max() - AUDIBLE_DB
    return float(np.abs(first - second)[audible].mean())


def mel_db(sound: Array) -> Array:
    """The power in decibels, float32 [windows, BANDS]."""
    import numpy as np

    windows = np.lib.stride_tricks.sliding_window_view(np.pad(sound, WINDOW // 2), WINDOW)[::HOP] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(windows)) ** 2
    mels = 2595 * np.log10(1 + np.fft.rfftfreq(WINDOW, 1 / SAMPLE_RATE) / 700)
    edges = np.linspace(2595 * np.log10(1 + 50 / 700), 2595 * np.log10(1 + 11_000 / 700), BANDS + 2)[:, None]
    rising = (mels - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - mels) / (edges[2:] - edges[1:-1])
    bands = power @ np.clip(np.minimum(rising, falling), 0, None).T
    return np.asarray(10 * np.log10(np.maximum(bands, bands.max() * 1e-7)), np.float32)


def _row(language: str, spoken: Sequence[tuple[str, dict[str, Array]]], understood: Callable[..., str]) -> str:
    far = {name: [distance_db(sounds[REFERENCE], sounds[name]) for _, sounds in spoken] for name in (PUBLISHED, CUT)}
    louder = [float(sounds[CUT].std() / sounds[REFERENCE].std()) for _, sounds in spoken]
    apart_ms = [abs(len(sounds[CUT]) - len(sounds[PUBLISHED])) * 1000 / SAMPLE_RATE for _, sounds in spoken]
    wrong = {
        name: mean(errors(text, understood(sounds[name], SAMPLE_RATE, language), language) for text, sounds in spoken)
        for name in (PUBLISHED, CUT)
    }
    cells = [f"{mean(values):.2f}, {max(values):.2f}" for values in far.values()]
    cells += [f"{min(louder):.2f} to {max(louder):.2f}", f"{max(apart_ms):.0f} ms apart at most"]
    cells.append(f"{wrong[PUBLISHED]:.1%}, {wrong[CUT]:.1%}")
    return f"| {language} | " + " | ".join(cells) + " |"


def _presets() -> list[KokoroVoice]:
    serving = configs.load("embedded").speech["supertonic-3"].serving
    assert serving is not None
    return [KokoroVoice.model_validate(voice) for voice in serving.options["voices"].values()]


def ears() -> Callable[..., str]:
    """What Whisper base understands of a sound, float32 [n], its rate and its language."""
    import soxr
    from faster_whisper import WhisperModel

    whisper = WhisperModel(str(store.ensure("whisper-base")), device="cpu", compute_type="int8", cpu_threads=2)

    def understood(sound: Array, sample_rate: int, language: str) -> str:
        segments, _ = whisper.transcribe(soxr.resample(sound, sample_rate, 16_000), language=language, temperature=0)
        return "".join(segment.text for segment in segments)

    return understood


def _write(folder: Path, name: str, sounds: dict[str, Array]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for way in (PUBLISHED, CUT):
        clip = Clip((sounds[way] * 32767).astype("<i2").tobytes(), SAMPLE_RATE)
        (folder / f"{name}-{way.replace(' ', '-')}.wav").write_bytes(wav(clip))
