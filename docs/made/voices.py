"""docs/voices.md: which voice speaks which language by which engine."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby

from babel import Locale

import configs
from contract.catalog import Catalog
from contract.speech.voices import Voice
from docs.made.blocks import filled

SYNTHESIZERS = {"kokoro-82m": "Kokoro", "espeak-ng": "espeak-ng", "svox-pico": "Pico where no voice is named"}
"""Names of runtimes of the profile `embedded`."""


def page() -> str:
    """The whole page, with its tables made anew."""
    catalog = configs.load("embedded")
    return filled("voices.md", voices="\n".join([*languages(catalog), "", *voices(catalog)]))


def languages(catalog: Catalog) -> list[str]:
    """Lines of a table: languages by the engines that speak them, and what speaks for these in `embedded`."""
    lines = ["| languages | engines (`provider`) | in the profiles `embedded` and `cpu` |", "|---|---|---|"]
    engines = catalog.speech.values()
    codes = {code for engine in engines for code in engine.languages}
    by_engines = defaultdict(list)
    for name, code in sorted((_name(code), code) for code in codes):
        speaking = [engine for engine in engines if code in engine.languages]
        runtimes = {
            engine.speaker_of(code, has_voice=has_voice).runtime for engine in speaking for has_voice in (True, False)
        }
        providers = ", ".join(f"`{engine.provider}`" for engine in speaking)
        spoken_by = ", ".join(label for runtime, label in SYNTHESIZERS.items() if runtime in runtimes)
        by_engines[providers, spoken_by].append(f"{name} (`{code}`)")
    return lines + [f"| {', '.join(names)} | {cells[0]} | {cells[1]} |" for cells, names in by_engines.items()]


def voices(catalog: Catalog) -> list[str]:
    """Lines of a table for each native language and engine, with every voice."""

    def group(voice: Voice) -> tuple[str, bool, str]:
        return _name(voice.primary_language), voice.from_plan, voice.provider

    lines = []
    for (language, from_plan, provider), members in groupby(sorted(catalog.voices.values(), key=group), key=group):
        plans = ", for plans with voice selection" if from_plan else ""
        lines += [f"**{language}**, `{provider}`{plans}:", "", "| `voice` | speaker | age |", "|---|---|---|"]
        for voice in members:
            status = f" ({voice.status})" if voice.status else ""
            lines.append(f"| `{voice.slug}` | {voice.description}{status} | {voice.age_group} |")
        lines.append("")
    return lines[:-1]


def _name(code: str) -> str:
    return str(Locale("en").languages[code])
