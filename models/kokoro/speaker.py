"""Text to sound: one network in memory, for several threads that take turns.

A turn is one run of the network, some seconds of sound. One run at a time is quickest, and each owner has no more; but
another owner's run begins at once beside it, so that a long text of one does not hold up a short one of another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from concurrency.semaphore import FairSemaphore
from models import ONNX, Imports
from models.kokoro import phonemes
from models.kokoro.network import load_network
from models.kokoro.styles import MOST_PHONEMES, KokoroVoice, Styles, expected
from models.weights.files import WeightsError

if TYPE_CHECKING:
    from audio.encoding import Samples
    from models.kokoro.network import Inputs

IMPORTS = ONNX + Imports(("numpy", "espeakng_loader", "regex", "torch", "safetensors.torch"))

SAMPLE_RATE = 24_000
SLOWEST, FASTEST = 0.3, 3.0

OWNERS_AT_ONCE = 2

ESPEAK_NAMES = {"en": "en-us", "de": "de", "es": "es", "fr": "fr", "hi": "hi", "it": "it", "pt": "pt-br"}
"""Name in espeak-ng of each language that it reads and the network knows the phonemes of, by ISO 639-1 code. The
network was trained with all but German."""

BRITISH = "en"

LEVEL = 0.1
"""Loudness of every voice, whatever its styles have: the root mean square of its samples."""

PAUSES_S = {".": 0.35, "!": 0.35, "?": 0.35, "…": 0.4, ",": 0.12, ";": 0.2, ":": 0.2, "—": 0.2}
"""Silence behind a run, by the sign that ends it."""

_QUIET = 0.01
_EDGE_S = 0.03
"""A synthesizer makes silence around what it says. What is quieter than this part of the peak goes, but for an edge."""


class Kokoro:
    """The network and its styles from a folder of weights. Raises WeightsError.

    Attributes:
        styles: names of the styles that voices mix.
        languages: ISO 639-1 codes that it can be asked for.
        network: phonemes to sound.
    """

    languages: tuple[str, ...] = tuple(ESPEAK_NAMES)

    def __init__(self, folder: Path, threads: int | None) -> None:
        self._tables = Styles(folder / "styles")
        self.styles = self._tables.names
        if not self.styles:
            raise WeightsError(f"`{folder}` contains no styles of Kokoro")
        self._number_of: dict[str, int] = json.loads((folder / "vocab.json").read_text("utf-8"))["vocab"]
        self.network = load_network(folder, threads)
        self._slots = FairSemaphore(OWNERS_AT_ONCE)

    def speak(self, text: str, language: str, voice: KokoroVoice) -> Samples:
        """The sound of a sentence or clause: float32 [n] at SAMPLE_RATE. Blocks; safe for several threads.

        Raises ValueError for a language or style that there is not.
        """
        import numpy as np

        return np.concatenate([np.empty(0, np.float32), *(run() for run in self.runs(text, language, voice))])

    def runs(
        self, text: str, language: str, voice: KokoroVoice, speed: float = 1.0, owner: str = ""
    ) -> Sequence[Callable[[], Samples]]:
        """The same as one call for each run of the network, so that others take their turns between them."""
        if language not in ESPEAK_NAMES:
            raise ValueError(f"Kokoro does not speak `{language}`")
        if unknown := voice.styles.keys() - set(self.styles):
            raise ValueError(f"Kokoro has no style `{min(unknown)}`")
        pace = min(max(SLOWEST, speed * voice.speed), FASTEST)
        texts = phonemes.runs(text, _accent(language, voice))
        return [partial(self._run, owner, run, voice, pace) for run in texts]

    def _run(self, owner: str, spelling: str, voice: KokoroVoice, speed: float) -> Samples:
        import numpy as np

        numbers = [self._number_of[char] for char in spelling if char in self._number_of][:MOST_PHONEMES]
        if not numbers:
            return np.empty(0, np.float32)
        inputs: Inputs = {
            "tokens": np.array([[0, *numbers, 0]], np.int64),
            "style": self._tables.row(voice.styles, len(numbers)),
            "speed": np.array([speed], np.float32),
        }
        with self._slots.blocking(owner):
            sound = self.network.sound(inputs) * np.float32(LEVEL / expected(voice.styles).loudness)
        return paused(sound.clip(-1, 1), SAMPLE_RATE, spelling[-1], speed)


def _accent(language: str, voice: KokoroVoice) -> str:
    """Espeak's name for the language: English is read as most of the voice's styles speak it."""
    british = sum(share for name, share in voice.styles.items() if name.startswith("b"))
    return BRITISH if language == "en" and british > 0.5 else ESPEAK_NAMES[language]


def paused(sound: Samples, sample_rate: int, sign: str, speed: float) -> Samples:
    """`sound` with the pause of the sign that ends it, in place of the silence around it."""
    import numpy as np

    loud = np.flatnonzero(np.abs(sound) > _QUIET * np.abs(sound).max(initial=0))
    edge = int(_EDGE_S * sample_rate)
    trimmed = sound[max(0, loud[0] - edge) : loud[-1] + edge] if len(loud) else sound[:0]
    return np.concatenate([trimmed, np.zeros(int(PAUSES_S.get(sign, 0) / speed * sample_rate), np.float32)])
