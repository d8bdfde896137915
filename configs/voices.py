"""Checks that engines, voices, sentences, traits and designers fit together, and can be chosen for every request.

The rule that chooses an engine is `contract.speech.routing`; what it needs from the stanzas is held here.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from configs.stanzas import CatalogError, check_table, read, stanzas, validated
from contract.catalog import SpeechModel, VoiceDesignModel
from contract.limits import AGE_YEARS
from contract.speech.voices import SYSTEM_VOICES, Voice, VoiceAlias
from contract.voice_design.traits import AXES, Traits, Vocabulary
from text.descriptions.lexicon import LONGEST_ENTRY

Engines = Collection[SpeechModel]


def check_routing(file: Path, engines: Engines, today: date) -> None:
    """Raises CatalogError for engines among which `choose` could not choose."""
    _check_unique(file, engines, "provider")
    _check_default(file, engines, today)
    _check_clips(file, engines)
    if not any(model.takeover_order is not None for model in engines):
        raise CatalogError(
            f"{file.name}: no stanza has `takeover_order`, so no engine speaks the languages that the default lacks"
        )
    _check_unique(file, engines, "takeover_order")


def load_voices(file: Path, engines: Engines) -> dict[str, Voice]:
    """Fixed voices by slug; each must belong to an engine of the catalogue. Raises CatalogError."""
    providers = {model.provider for model in engines}
    voices = {slug: validated(Voice, {**stanza, "slug": slug}, file, slug) for slug, stanza in stanzas(file).items()}
    for slug, voice in voices.items():
        if voice.provider not in providers:
            raise CatalogError(f"{file.name} [{slug}] `provider`: speech.toml has no engine of this name")
    return voices


def load_aliases(file: Path, voices: Mapping[str, Voice], engines: Engines) -> dict[str, VoiceAlias]:
    """Other names of voices; each stands for voices of the catalogue, and is none of them. Raises CatalogError."""
    aliases = {name: validated(VoiceAlias, stanza, file, name) for name, stanza in stanzas(file).items()}
    languages = {"auto", *(code for model in engines for code in model.languages)}
    for name, alias in aliases.items():
        if name in voices or name in SYSTEM_VOICES:
            raise CatalogError(f"{file.name} [{name}]: a voice already has this name")
        if unknown := set(alias.voices) - voices.keys():
            raise CatalogError(f"{file.name} [{name}] `voices`: there is no voice `{min(unknown)}`")
        if alias.language is not None and alias.language not in languages:
            raise CatalogError(f"{file.name} [{name}] `language`: no engine speaks `{alias.language}`")
    return aliases


def load_sentences(file: Path, engines: Engines) -> dict[str, str]:
    """Texts of samples by language; every language that an engine speaks has one. Raises CatalogError."""
    sentences: dict[str, str] = {}
    for language, sentence in read(file).items():
        if not isinstance(sentence, str):
            raise CatalogError(f"{file.name} `{language}` must be a string")
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
    _check_unique(file, engines, "default_since")


def _check_clips(file: Path, engines: Engines) -> None:
    speakers = [model for model in engines if model.speaks_for_clips]
    if not speakers:
        raise CatalogError(f"{file.name}: no stanza has `speaks_for_clips = true`")
    _check_unique(file, speakers, "speaks_for_clips")
    if not speakers[0].has_cloning:
        raise CatalogError(f"{file.name} [{speakers[0].id}] `speaks_for_clips`: this engine has no `has_cloning`")


def _check_unique(file: Path, engines: Engines, key: str) -> None:
    """Raises CatalogError where two engines have the same value; None does not count."""
    first: dict[Hashable, str] = {}
    for model in engines:
        value = getattr(model, key)
        if value is not None and first.setdefault(value, model.id) != model.id:
            raise CatalogError(f"{file.name} [{model.id}] `{key}`: [{first[value]}] has the same value")


def load_traits(folder: Path) -> Traits:
    """Reads `traits.toml`, `suggest.toml` and `public_figures.toml`. Raises CatalogError."""
    file, words, figures = folder / "traits.toml", folder / "suggest.toml", folder / "public_figures.toml"
    vocabulary = validated(Vocabulary, read(words), words, "words")
    people = validated(Traits, read(figures), figures, "people").figures
    traits = validated(Traits, _with_ids(file, read(file)), file, "traits")
    traits = traits.model_copy(update={"vocabulary": vocabulary, "figures": people})
    _check_axes(file, traits)
    _check_ages(file, traits)
    if set(traits.genders) != {"m", "f"}:
        raise CatalogError(f"{file.name} `genders` must be `m` and `f`")
    _check_words(file, traits)
    _check_figures(figures, traits)
    return traits


def check_designers(
    file: Path,
    designers: Collection[VoiceDesignModel],
    engines: Engines,
    sentences: Mapping[str, str],
    traits: Traits,
) -> None:
    """Raises CatalogError for a designer with voices no engine speaks, or languages without words in the tables."""
    speakers = {model.provider: model for model in engines}
    for model in designers:
        place = f"{file.name} [{model.id}]"
        if model.provider not in speakers:
            raise CatalogError(f"{place} `provider`: speech.toml has no engine of this name")
        if unspoken := set(model.languages) - set(speakers[model.provider].languages):
            raise CatalogError(f"{place} `languages`: engine `{model.provider}` does not speak {min(unspoken)}")
        if silent := set(model.languages) - sentences.keys():
            raise CatalogError(f"{place} `languages`: there is no sentence for {min(silent)}")
        if nameless := set(model.languages) - traits.languages.keys():
            raise CatalogError(f"{place} `languages`: traits.toml has no name for {min(nameless)}")
        if unoffered := traits.languages.keys() - set(model.languages):
            raise CatalogError(
                f"traits.toml [languages.{min(unoffered)}]: [{model.id}] designs no voice in this language"
            )


def _with_ids(file: Path, tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of the file as fields of Traits: axes together, and each stanza with its id."""
    for name, named in tables.items():
        check_table(file, name, named)
        for id, stanza in named.items():
            check_table(file, f"{name}.{id}", stanza)
            if name in (*AXES, "age_groups"):
                stanza["id"] = id
    rest = {name: named for name, named in tables.items() if name not in AXES}
    return {**rest, "axes": {axis: tables[axis] for axis in AXES if axis in tables}}


def _check_axes(file: Path, traits: Traits) -> None:
    for axis in AXES:
        plain = [trait.id for trait in traits.axes.get(axis, {}).values() if trait.is_plain]
        if len(plain) != 1:
            raise CatalogError(
                f"{file.name} `{axis}`: exactly one trait must have `is_plain = true`, but {len(plain)} have it"
            )


def _check_ages(file: Path, traits: Traits) -> None:
    """Every age that can be ordered is in one group."""
    expected = AGE_YEARS[0]
    for group in traits.age_groups.values():
        if group.from_years != expected:
            raise CatalogError(f"{file.name} [age_groups.{group.id}] `from_years` must be {expected}")
        if group.to_years < group.from_years:
            raise CatalogError(f"{file.name} [age_groups.{group.id}] `to_years` must not be below `from_years`")
        expected = group.to_years + 1
    if expected != AGE_YEARS[1] + 1:
        raise CatalogError(
            f"{file.name} `age_groups`: the oldest group ends at {expected - 1}, but it must end at {AGE_YEARS[1]}"
        )


def _check_words(file: Path, traits: Traits) -> None:
    for field, id, named in traits.named():
        place = f"{field if field in AXES else field + 's'}.{id}"
        if "en" not in named.labels:
            raise CatalogError(f"{file.name} [{place}] `labels` must have one in English")
        for language, words in named.words.items():
            if language not in traits.vocabulary.wording:
                raise CatalogError(
                    f"{file.name} [{place}] `words.{language}`: suggestions do not support this language"
                )
            if any(not word.strip(" -") for word in words):
                raise CatalogError(f"{file.name} [{place}] `words.{language}`: a word is empty")
            if long := next((word for word in words if len(word.split()[0].strip("-")) > LONGEST_ENTRY), None):
                raise CatalogError(f"{file.name} [{place}] `words.{language}`: `{long}` is too long to be matched")


def _check_figures(file: Path, traits: Traits) -> None:
    for figure in traits.figures:
        for axis, id in figure.traits.items():
            if id not in next((traits.axes[known] for known in AXES if known == axis), {}):
                raise CatalogError(f"{file.name} [{figure.names[0]}] `{axis}`: there is no trait `{id}`")
