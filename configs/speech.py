"""Whether engines, voices and sentences fit together, and whether an engine can be chosen for every request.

The rule that chooses is `contract.speech.routing`; what it needs from the stanzas of the engines is held here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from datetime import date
from pathlib import Path

from configs.stanzas import CatalogError, read, stanzas, validated
from contract.catalog import SpeechModel
from contract.speech.voices import SYSTEM_VOICES, Voice, VoiceAlias

Engines = Collection[SpeechModel]


def check_routing(file: Path, engines: Engines, today: date) -> None:
    """Raises CatalogError for engines among which `choose` could not choose."""
    _check_unique(file, engines, "provider", lambda model: model.provider)
    _check_default(file, engines, today)
    _check_clips(file, engines)
    if not any(model.takeover_order is not None for model in engines):
        raise CatalogError(f"{file.name}: no stanza has `takeover_order`, so nobody speaks what the default lacks")
    _check_unique(file, engines, "takeover_order", lambda model: model.takeover_order)


def load_voices(file: Path, engines: Engines) -> dict[str, Voice]:
    """Fixed voices by slug; each must belong to an engine of the catalogue. Raises CatalogError."""
    providers = {model.provider for model in engines}
    voices = {slug: validated(Voice, {**stanza, "slug": slug}, file, slug) for slug, stanza in stanzas(file).items()}
    for slug, voice in voices.items():
        if voice.provider not in providers:
            raise CatalogError(f"{file.name} [{slug}] `provider`: no engine in speech.toml is called so")
    return voices


def load_aliases(file: Path, voices: Mapping[str, Voice], engines: Engines) -> dict[str, VoiceAlias]:
    """Other names of voices; each stands for voices of the catalogue, and is none of them. Raises CatalogError."""
    aliases = {name: validated(VoiceAlias, stanza, file, name) for name, stanza in stanzas(file).items()}
    languages = {"auto", *(code for model in engines for code in model.languages)}
    for name, alias in aliases.items():
        if name in voices or name in SYSTEM_VOICES:
            raise CatalogError(f"{file.name} [{name}]: a voice is called so")
        if unknown := set(alias.voices) - voices.keys():
            raise CatalogError(f"{file.name} [{name}] `voices`: there is no voice `{min(unknown)}`")
        if alias.language is not None and alias.language not in languages:
            raise CatalogError(f"{file.name} [{name}] `language`: no engine speaks `{alias.language}`")
    return aliases


def load_sentences(file: Path, engines: Engines) -> dict[str, str]:
    """What samples say, by language; every language that an engine speaks has one. Raises CatalogError."""
    sentences: dict[str, str] = {}
    for language, sentence in read(file).items():
        if not isinstance(sentence, str):
            raise CatalogError(f"{file.name} `{language}`: a string is expected")
        sentences[language] = sentence
    for model in engines:
        if missing := set(model.languages) - sentences.keys():
            raise CatalogError(
                f"{file.name}: there is no sentence for `{min(missing)}`, which [{model.id}] of speech.toml speaks"
            )
    return sentences


def _check_default(file: Path, engines: Engines, today: date) -> None:
    if not any(model.default_since and model.default_since <= today for model in engines):
        future = min((m for m in engines if m.default_since), key=lambda m: m.default_since or date.max, default=None)
        place = f"{file.name} [{future.id}] `default_since`" if future else f"{file.name}: `default_since`"
        raise CatalogError(f"{place}: no engine is the default today, {today}")
    _check_unique(file, engines, "default_since", lambda model: model.default_since)


def _check_clips(file: Path, engines: Engines) -> None:
    speakers = [model for model in engines if model.speaks_for_clips]
    if not speakers:
        raise CatalogError(f"{file.name}: no stanza has `speaks_for_clips = true`")
    _check_unique(file, speakers, "speaks_for_clips", lambda model: model.speaks_for_clips)
    if not speakers[0].has_cloning:
        raise CatalogError(f"{file.name} [{speakers[0].id}] `speaks_for_clips`: this engine has no `has_cloning`")


def _check_unique(file: Path, engines: Engines, key: str, value_of: Callable[[SpeechModel], Hashable]) -> None:
    """Raises CatalogError where two engines have the same value; None does not count."""
    first: dict[Hashable, str] = {}
    for model in engines:
        value = value_of(model)
        if value is not None and first.setdefault(value, model.id) != model.id:
            raise CatalogError(f"{file.name} [{model.id}] `{key}`: [{first[value]}] says the same")
