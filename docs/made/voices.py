"""The tables in docs/voices.md: who speaks which language, and every voice of the catalogue by its language."""

from __future__ import annotations

from pathlib import Path

import configs
from contract.catalog import Catalog
from contract.speech.voices import Voice

PAGE = Path(__file__).parents[1] / "voices.md"
BEGIN, END = "<!-- made by `make docs` of configs/catalog -->", "<!-- end -->"

NAMES = {
    "ar": "Arabic",
    "bg": "Bulgarian",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "et": "Estonian",
    "fi": "Finnish",
    "fr": "French",
    "hi": "Hindi",
    "hr": "Croatian",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sv": "Swedish",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "vi": "Vietnamese",
    "zh": "Chinese",
}
"""Languages of the engines by ISO 639-1."""

SYNTHESIZERS = {"kokoro-82m": "Kokoro", "espeak-ng": "espeak-ng", "svox-pico": "Pico where no voice is named"}
"""Names of runtimes of the profile `embedded`."""


def page() -> str:
    """The whole page, with its tables made anew."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    catalog = configs.load("embedded")
    tables = "\n".join([*languages(catalog), "", *voices(catalog)])
    return f"{before}{BEGIN}\n{tables}\n{END}{after}"


def languages(catalog: Catalog) -> list[str]:
    """Lines of a table: a language, engines that speak it, and what speaks for them in `embedded`."""
    lines = ["| language | engines (`provider`) | in the profiles `embedded` and `cpu` |", "|---|---|---|"]
    engines = catalog.speech.values()
    for code, name in sorted(NAMES.items(), key=lambda item: item[1]):
        speaking = [engine for engine in engines if code in engine.languages]
        runtimes = {
            engine.speaker_of(code, has_voice=has_voice).runtime for engine in speaking for has_voice in (True, False)
        }
        providers = ", ".join(f"`{engine.provider}`" for engine in speaking)
        spoken_by = ", ".join(label for runtime, label in SYNTHESIZERS.items() if runtime in runtimes)
        lines.append(f"| {name} (`{code}`) | {providers} | {spoken_by} |")
    return lines


def voices(catalog: Catalog) -> list[str]:
    """Lines of a table: every voice, those of one language together."""

    def order(voice: Voice) -> tuple[str, bool, str]:
        return NAMES[voice.primary_language], voice.from_plan, voice.provider

    lines = ["| native language | `voice` | engine | speaker | age | for |", "|---|---|---|---|---|---|"]
    for voice in sorted(catalog.voices.values(), key=order):
        who = "plans with voice selection" if voice.from_plan else "everyone"
        status = f" ({voice.status})" if voice.status else ""
        cells = (NAMES[voice.primary_language], f"`{voice.slug}`", f"`{voice.provider}`")
        lines.append(f"| {' | '.join(cells)} | {voice.description}{status} | {voice.age_group} | {who} |")
    return lines
