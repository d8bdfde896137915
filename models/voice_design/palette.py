"""Selects the styles of Kokoro that a voice is mixed from: drawn by chance among those that fit the order.

What each style sounds like, and which sound a trait leans to, is data: styles.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from functools import cache
from math import exp, log2
from pathlib import Path
from random import Random
from typing import NamedTuple

from contract.base import Frozen
from contract.voice_design.engine import DesignJob
from models.kokoro.styles import measured

SHEET = Path(__file__).with_name("styles.toml")

FAMILIES = {"en": "ab", "de": "fei", "es": "e", "fr": "f", "hi": "h", "it": "i", "pt": "p", "ja": "j", "zh": "z"}
"""Language to the first letters of the styles of its own speakers; English ones stand in where there are none, and
Romance ones in German, which are understood better. The second letter of a style is `f` or `m`."""

OTHER_GENDER, OTHER_FAMILY = 0.02, 0.15
"""Factor for drawing a style of another gender, or of speakers of another language."""

HALVED_BY_SEMITONES = 3.0
"""A style that is so far from the target is drawn half as often."""

SHARE = (0.3, 0.7)
"""Bounds of the share of the first of two styles."""


class StyleSound(Frozen):
    """Sound of a style, or the direction of a trait.

    Attributes:
        brightness, liveliness: share of high frequencies, and movement of the pitch; 0 is the usual style, and one
            of three is beyond 1 or -1.
    """

    brightness: float = 0.0
    liveliness: float = 0.0


class Sheet(Frozen):
    """All of styles.toml: styles by name, leanings by axis and trait."""

    styles: dict[str, StyleSound]
    leanings: dict[str, dict[str, StyleSound]]


class Ends(NamedTuple):
    """Shares of styles by name, of the lower and of the higher end."""

    below: dict[str, float]
    above: dict[str, float]


@cache
def sheet() -> Sheet:
    """Known styles and traits."""
    return Sheet.model_validate(tomllib.loads(SHEET.read_text("utf-8")))


def ends(job: DesignJob, names: Collection[str], draw: Random) -> Ends:
    """Two styles on each side of the pitch of the job; the outermost style where nothing is beyond."""
    lower = [name for name in _usable(names) if measured()[name].f0_hz <= job.target_hz]
    higher = [name for name in _usable(names) if measured()[name].f0_hz > job.target_hz]
    last = outermost(names)
    return Ends(_pair(job, lower, draw) if lower else last.below, _pair(job, higher, draw) if higher else last.above)


def outermost(names: Collection[str]) -> Ends:
    """The lowest style of all, and the highest."""
    lowest, *_, highest = _usable(names)
    return Ends({lowest: 1.0}, {highest: 1.0})


def pitch_of(shares: dict[str, float]) -> float:
    """Median pitch that a mixture may be expected to have, in Hz."""
    return float(2 ** sum(share * log2(measured()[name].f0_hz) for name, share in shares.items()))


def mixed(ends: Ends, above: float) -> dict[str, float]:
    """One voice of both: `above` is the share of the higher end, 0 to 1."""
    shares: dict[str, float] = {}
    for end, part in zip(ends, (1 - above, above), strict=True):
        for name, share in end.items():
            shares[name] = shares.get(name, 0.0) + part * share
    return {name: share for name, share in shares.items() if share > 0}


def requested_sound(job: DesignJob) -> StyleSound:
    """The sound that the traits of the job ask for together."""
    leanings = [sheet().leanings.get(axis, {}).get(id, StyleSound()) for axis, id in job.traits.items()]
    return StyleSound(
        brightness=sum(leaning.brightness for leaning in leanings),
        liveliness=sum(leaning.liveliness for leaning in leanings),
    )


def _usable(names: Collection[str]) -> list[str]:
    """The styles among `names` that designs use, from the lowest to the highest."""
    return [name for name in measured() if name in names and name in sheet().styles]


def _pair(job: DesignJob, styles: Sequence[str], draw: Random) -> dict[str, float]:
    """Two of `styles`, better ones more often: the first to come of that many clocks, each as quick as it fits."""
    sound = requested_sound(job)
    arrivals = sorted((draw.expovariate(_fit(job, sound, name)), name) for name in styles)
    share = draw.uniform(*SHARE)
    names = [name for _, name in arrivals[:2]]
    return dict(zip(names, (share, 1 - share), strict=True)) if len(names) > 1 else {names[0]: 1.0}


def _fit(job: DesignJob, sound: StyleSound, name: str) -> float:
    """Returns how well a style suits the job; above 0."""
    style, family, gender = sheet().styles[name], name[0], name[1]
    semitones = abs(12 * log2(measured()[name].f0_hz / job.target_hz))
    fit = 2 ** (-semitones / HALVED_BY_SEMITONES)
    fit *= exp(sound.brightness * style.brightness + sound.liveliness * style.liveliness)
    fit *= 1.0 if gender == job.gender else OTHER_GENDER
    return float(fit * (1.0 if family in FAMILIES.get(job.language, FAMILIES["en"]) else OTHER_FAMILY))
