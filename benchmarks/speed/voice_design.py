"""How often a designed voice comes out at the pitch that was ordered, after how many attempts and seconds.

    python -m benchmarks.speed.voice_design                      200 orders, some 15 minutes

The adapter of the embedded profile is asked in this process. Orders are drawn by chance: gender, age, language, all
traits, and in one of five a pitch from 60 to 400 Hz. What a language reaches is what comes of orders for 60 and 400 Hz.
Ctrl-C ends the run with what there is.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Literal

import numpy as np
from rich.console import Console
from rich.progress import track

import configs
import models
from benchmarks import tables
from contract.catalog import Catalog, VoiceDesignModel
from contract.limits import TARGET_HZ
from contract.voice_design.draft import VoiceSpec
from contract.voice_design.engine import DesignResult
from contract.voice_design.order import DesignOrder, voice_spec

LANGUAGES = ("en", "en", "en", "en", "en", "es", "fr", "it", "pt", "de")
ONE_IN = 5
"""Of so many orders, one names a pitch."""

console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Outcome:
    """An order and what became of it; `is_within_reach` where its language has voices as low and high as the target."""

    spec: VoiceSpec
    voice: DesignResult
    is_within_reach: bool


def orders(catalog: Catalog, model: VoiceDesignModel, count: int, seed: int) -> list[VoiceSpec]:
    draw = Random(seed)
    return [voice_spec(_order(draw, number), catalog.traits, model, draw) for number in range(count)]


def _order(draw: Random, number: int) -> DesignOrder:
    gender: Literal["m", "f"] = draw.choice(("m", "f"))
    named = None if number % ONE_IN else round(TARGET_HZ[0] * (TARGET_HZ[1] / TARGET_HZ[0]) ** draw.random())
    return DesignOrder(gender=gender, age_years=draw.randint(16, 90), language=draw.choice(LANGUAGES), target_hz=named)


async def run(catalog: Catalog, count: int, seed: int, outcomes: list[Outcome]) -> None:
    """Every order, one after the other; `outcomes` grows."""
    (model,) = catalog.voice_design.values()
    designer = models.load(model)

    async def design(planned: VoiceSpec) -> DesignResult:
        made: DesignResult = await designer.design(planned.job(catalog.sentences[planned.language], model.max_attempts))
        return made

    async def reach_hz(language: str) -> tuple[float, float]:
        ends = []
        for target in TARGET_HZ:
            order = DesignOrder(gender="f", age_years=30, language=language, target_hz=target)
            ends.append((await design(voice_spec(order, catalog.traits, model, Random(seed)))).f0_hz)
        return ends[0], ends[1]

    reaches = {language: await reach_hz(language) for language in dict.fromkeys(LANGUAGES)}
    for planned in track(orders(catalog, model, count, seed), "designing", console=console):
        voice = await design(planned)
        low_hz, high_hz = reaches[planned.language]
        outcomes.append(Outcome(planned, voice, low_hz <= planned.target_hz <= high_hz))
    designer.close()


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown: a row for each language and one for all."""
    groups = {name: [each for each in outcomes if each.spec.language == name] for name in dict.fromkeys(LANGUAGES)}
    head = "language | orders | within reach | in band of these | attempts, mean | synthesis s, p50, p95"
    return tables.table(head, [_row(name, some) for name, some in (groups | {"all": outcomes}).items() if some])


def _row(name: str, outcomes: Sequence[Outcome]) -> tuple[object, ...]:
    near = [outcome for outcome in outcomes if outcome.is_within_reach]
    hits = sum(outcome.voice.in_band for outcome in near)
    seconds = [outcome.voice.seconds for outcome in outcomes]
    attempts = statistics.fmean(outcome.voice.attempts_used for outcome in outcomes)
    spent_s = f"{np.percentile(seconds, 50):.1f}, {np.percentile(seconds, 95):.1f}"
    return name, len(outcomes), len(near), f"{hits} ({hits / max(1, len(near)):.0%})", f"{attempts:.2f}", spent_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    catalog = configs.load("embedded")
    outcomes: list[Outcome] = []
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(run(catalog, options.orders, options.seed, outcomes))
    finally:
        print(table(outcomes))


if __name__ == "__main__":
    main()
