"""The style tables of Kokoro, and voices, which are mixtures of them. `af_heart` is American and female.

    styles = Styles(folder / "styles")
    styles.row({"af_heart": 0.5, "af_bella": 0.5}, phonemes=40)     float32 [1, 256]
    mixture(165.0)                                                  the two styles beside 165 Hz, and their shares

Between two styles the pitch moves almost evenly with the share, so a mixture is found by its height. As JSON, a
`KokoroVoice` is the recipe of a designed voice.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field, PositiveFloat

from contract.base import Frozen
from models.espeak.voices import VoiceSettings

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float32]]

MOST_PHONEMES = 510
"""Rows of a table: one for each number of phonemes, from 1."""

STYLE_NUMBERS = 256
MEASURED = Path(__file__).with_name("measured.toml")


NATIVE = {
    "de": {"f": "ff_siwis", "m": "ff_siwis"},
    "es": {"f": "ef_dora", "m": "em_alex"},
    "fr": {"f": "ff_siwis", "m": "ff_siwis"},
    "hi": {"f": "hf_alpha", "m": "hm_omega"},
    "it": {"f": "if_sara", "m": "im_nicola"},
    "pt": {"f": "pf_dora", "m": "pm_alex"},
}
"""A style made from recordings in a language, by ISO 639-1 code and gender. French has only one. German has none, and
is understood best with that one."""

NATIVE_SHARE = 0.5

ENGLISH, ROMANCE = ("a", "b"), ("e", "f", "i")
"""First letters of American and British styles; of Spanish, French and Italian ones, which German is understood by."""


class Styles:
    """The tables of a folder, one file each: float32 [510, 256], little-endian. Mapped, so processes share them."""

    def __init__(self, folder: Path) -> None:
        import numpy as np

        self._tables = {
            file.stem: np.memmap(file, "<f4", "r", shape=(MOST_PHONEMES, STYLE_NUMBERS))
            for file in sorted(folder.glob("*.bin"))
        }
        self.names: tuple[str, ...] = tuple(self._tables)

    def row(self, shares: Mapping[str, float], phonemes: int) -> Array:
        """The weighted mean of the rows for this length: float32 [1, 256]. Raises ValueError for unknown names."""
        import numpy as np

        if unknown := shares.keys() - self._tables.keys():
            raise ValueError(f"there is no style `{min(unknown)}`")
        row = min(max(phonemes, 1), MOST_PHONEMES) - 1
        mean = sum(share * self._tables[name][row].astype(np.float64) for name, share in shares.items())
        return np.asarray(mean, np.float32)[None]


class Measured(NamedTuple):
    """Measured sound of a style in English: its median pitch, and the root mean square of its samples."""

    f0_hz: float
    loudness: float


@cache
def measured() -> dict[str, Measured]:
    """Measurements of each style, from the lowest to the highest."""
    rows = tomllib.loads(MEASURED.read_text("utf-8"))
    return dict(sorted(((name, Measured(**row)) for name, row in rows.items()), key=lambda item: item[1]))


def expected(shares: Mapping[str, float]) -> Measured:
    """Returns the approximate sound of a mixture: the weighted mean of its styles."""
    styles = measured()
    return Measured(
        sum(share * styles[name].f0_hz for name, share in shares.items()),
        sum(share * styles[name].loudness for name, share in shares.items()),
    )


def at_home(shares: Mapping[str, float], language: str) -> Mapping[str, float]:
    """The mixture with half of a native style, by which it is understood much better outside of English."""
    if language not in NATIVE:
        return shares
    women = sum(share for name, share in shares.items() if name[1] == "f")
    native = NATIVE[language]["f" if women > 0.5 else "m"]
    mixed = {name: share * (1 - NATIVE_SHARE) for name, share in shares.items()}
    return mixed | {native: mixed.get(native, 0.0) + NATIVE_SHARE}


def mixture(f0_hz: float, language: str = "en") -> dict[str, float]:
    """Shares of the two neighbours of `f0_hz` among the styles that fit a language; of the outermost one beyond."""
    names = [name for name in measured() if name.startswith(ROMANCE if language == "de" else ENGLISH)]
    heights_hz = [measured()[name].f0_hz for name in names]
    above = next((at for at, height_hz in enumerate(heights_hz) if height_hz >= f0_hz), len(names) - 1)
    below = max(above - 1, 0)
    if above == below or not heights_hz[below] < f0_hz < heights_hz[above]:
        return {names[above]: 1.0}
    share = (f0_hz - heights_hz[below]) / (heights_hz[above] - heights_hz[below])
    return {names[below]: 1 - share, names[above]: share}


def _shares(weights: dict[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


Weight = Annotated[float, Field(gt=0, le=1e6)]
Mixture = Annotated[dict[str, Weight], Field(min_length=1), AfterValidator(_shares)]


class KokoroVoice(Frozen):
    """Recipe of a voice.

    Attributes:
        styles: weights of style tables by name, e.g. `af_heart`; any positive numbers, kept as shares of 1.
        speed: 1 is the network's own.
        espeak: espeak-ng's voice for languages that Kokoro does not speak; None for one of like height.
    """

    styles: Mixture
    speed: PositiveFloat = 1.0
    espeak: VoiceSettings | None = None
