"""Traits of voices to design: whether they fit together, and whether their designers fit the engines that speak."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from configs.stanzas import CatalogError, check_table, read, validated
from contract.catalog import SpeechModel, VoiceDesignModel
from contract.limits import AGE_YEARS
from contract.voice_design.traits import AXES, Traits
from contract.voice_design.vocabulary import Vocabulary
from text.descriptions.lexicon import LONGEST_ENTRY

FILE = "traits.toml"


def load_traits(folder: Path) -> Traits:
    """What `traits.toml`, `suggest.toml` and `public_figures.toml` say. Raises CatalogError."""
    file, words, figures = folder / FILE, folder / "suggest.toml", folder / "public_figures.toml"
    vocabulary = validated(Vocabulary, read(words), words, "words")
    people = validated(Traits, read(figures), figures, "people").figures
    traits = validated(Traits, _with_ids(file, read(file)), file, "traits")
    traits = traits.model_copy(update={"vocabulary": vocabulary, "figures": people})
    _check_axes(file, traits)
    _check_ages(file, traits)
    if set(traits.genders) != {"m", "f"}:
        raise CatalogError(f"{file.name} `genders`: `m` and `f` are expected")
    _check_words(file, traits)
    _check_figures(figures, traits)
    return traits


def check_designers(
    file: Path,
    designers: Collection[VoiceDesignModel],
    engines: Iterable[SpeechModel],
    sentences: Mapping[str, str],
    traits: Traits,
) -> None:
    """Raises CatalogError for a designer whose voices no engine would speak, or whose languages lack words of ours."""
    speakers = {model.provider: model for model in engines}
    for model in designers:
        place = f"{file.name} [{model.id}]"
        if model.provider not in speakers:
            raise CatalogError(f"{place} `provider`: no engine in speech.toml is called so")
        if unspoken := set(model.languages) - set(speakers[model.provider].languages):
            raise CatalogError(f"{place} `languages`: engine `{model.provider}` does not speak {min(unspoken)}")
        if silent := set(model.languages) - sentences.keys():
            raise CatalogError(f"{place} `languages`: there is no sentence for {min(silent)}")
        if nameless := set(model.languages) - traits.languages.keys():
            raise CatalogError(f"{place} `languages`: {FILE} has no name for {min(nameless)}")
        if unoffered := traits.languages.keys() - set(model.languages):
            raise CatalogError(f"{FILE} [languages.{min(unoffered)}]: [{model.id}] designs no voice in this language")


def _with_ids(file: Path, tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of the file as fields of Traits: axes together, and each stanza with its id."""
    for name, stanzas in tables.items():
        check_table(file, name, stanzas)
        for id, stanza in stanzas.items():
            check_table(file, f"{name}.{id}", stanza)
            if name in (*AXES, "age_groups"):
                stanza["id"] = id
    rest = {name: stanzas for name, stanzas in tables.items() if name not in AXES}
    return {**rest, "axes": {axis: tables[axis] for axis in AXES if axis in tables}}


def _check_axes(file: Path, traits: Traits) -> None:
    for axis in AXES:
        plain = [trait.id for trait in traits.axes.get(axis, {}).values() if trait.is_plain]
        if len(plain) != 1:
            raise CatalogError(f"{file.name} `{axis}`: exactly one trait has `is_plain = true`, here {len(plain)} have")


def _check_ages(file: Path, traits: Traits) -> None:
    """Every age that can be ordered is in one group."""
    expected = AGE_YEARS[0]
    for group in traits.age_groups.values():
        if group.from_years != expected:
            raise CatalogError(f"{file.name} [age_groups.{group.id}] `from_years`: {expected} is expected")
        if group.to_years < group.from_years:
            raise CatalogError(f"{file.name} [age_groups.{group.id}] `to_years`: it is below `from_years`")
        expected = group.to_years + 1
    if expected != AGE_YEARS[1] + 1:
        raise CatalogError(f"{file.name} `age_groups`: the oldest ends at {expected - 1}, not at {AGE_YEARS[1]}")


def _check_words(file: Path, traits: Traits) -> None:
    for field, id, named in traits.named():
        place = f"{field if field in AXES else field + 's'}.{id}"
        if "en" not in named.labels:
            raise CatalogError(f"{file.name} [{place}] `labels`: there is none in English")
        for language, words in named.heard.items():
            if language not in traits.vocabulary.wording:
                raise CatalogError(f"{file.name} [{place}] `heard.{language}`: suggestions have no wording in it")
            if any(not word.strip(" -") for word in words):
                raise CatalogError(f"{file.name} [{place}] `heard.{language}`: one of the words is empty")
            if long := next((word for word in words if len(word.split()[0]) > LONGEST_ENTRY), None):
                raise CatalogError(f"{file.name} [{place}] `heard.{language}`: `{long}` is too long to be found")


def _check_figures(file: Path, traits: Traits) -> None:
    for figure in traits.figures:
        for axis, id in figure.traits.items():
            if id not in next((traits.axes[known] for known in AXES if known == axis), {}):
                raise CatalogError(f"{file.name} [{figure.names[0]}] `{axis}`: there is no `{id}`")
