"""What we offer here: the catalogue, one TOML stanza per model, read once by `load`.

catalog/<noun>.toml     public facts of each model + `[<id>.serving.<profile>]`
catalog/voices.toml     who speaks: one stanza per voice; sentences.toml: what they say in samples
presets/<id>.json       packs of questions for decisions, with labelled examples
<profile>.yaml          Serve config file of that profile: where and how the graph is deployed
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from contract.body import parse
from contract.catalog import CATALOG_TYPES, Catalog, Model, SpeechModel
from contract.decisions.presets import Preset
from contract.errors import ApiError
from contract.speech.request import Provider
from contract.speech.voices import Voice

FOLDER = Path(__file__).parent
PROFILES = ("embedded", "cpu", "production", "twins")


class CatalogError(Exception):
    """A stanza that cannot be used; the sentence names file, stanza and key."""


def load(profile: str, folder: Path = FOLDER / "catalog") -> Catalog:
    """The catalogue with the `serving` tables of `profile`. Raises CatalogError."""
    if profile not in PROFILES:
        raise CatalogError(f"there is no profile `{profile}`; there are {', '.join(PROFILES)}")
    kinds = {noun: _read(folder / f"{noun}.toml", kind, profile) for noun, kind in CATALOG_TYPES.items()}
    return Catalog(
        profile=profile,
        presets=load_presets(),
        voices=_voices(folder / "voices.toml", kinds),
        sentences=_sentences(folder / "sentences.toml", kinds),
        **kinds,
    )


def load_presets(folder: Path = FOLDER / "presets") -> dict[str, Preset]:
    """Every pack of questions by id. Raises CatalogError."""
    return {file.stem: _preset(file) for file in sorted(folder.glob("*.json"))}


def _voices(file: Path, kinds: Mapping[str, Mapping[str, Any]]) -> dict[str, Voice]:
    """Fixed voices by slug; each must belong to an engine of the catalogue, which knows all that requests may name."""
    providers = {model.provider for model in kinds[SpeechModel.noun].values()}
    if missing := set(get_args(Provider)) - providers:
        raise CatalogError(f"speech.toml: no stanza has the provider `{min(missing)}`, which requests may name")
    voices = {}
    for slug, stanza in _stanzas(file).items():
        try:
            voices[slug] = Voice.model_validate({**stanza, "slug": slug})
        except ValidationError as error:
            raise _finding(file, slug, error) from None
        if voices[slug].provider not in providers:
            raise CatalogError(f"{file.name} [{slug}] `provider`: no engine in speech.toml is called so")
    return voices


def _sentences(file: Path, kinds: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """What samples say, by language; every language that an engine speaks has one."""
    sentences: dict[str, Any] = _stanzas(file)
    spoken = {language for model in kinds[SpeechModel.noun].values() for language in model.languages}
    if missing := spoken - set(sentences):
        raise CatalogError(f"{file.name}: there is no sentence for {', '.join(sorted(missing))}")
    return sentences


def _preset(file: Path) -> Preset:
    try:
        preset = parse(Preset, file.read_bytes())
    except ApiError as error:
        raise CatalogError(f"{file.name}: {error.message}") from None
    if preset.id != file.stem:
        raise CatalogError(f"{file.name}: the id is `{preset.id}`; it must be the name of the file")
    return preset


def _read(file: Path, kind: type[Model], profile: str) -> dict[str, Model]:
    return {id: _model(file, id, stanza, kind, profile) for id, stanza in _stanzas(file).items()}


def _stanzas(file: Path) -> dict[str, dict[str, Any]]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{file.name}: {error}") from None


def _model(file: Path, id: str, stanza: dict[str, Any], kind: type[Model], profile: str) -> Model:
    servings = stanza.pop("serving", {})
    if unknown := set(servings) - set(PROFILES):
        raise CatalogError(f"{file.name} [{id}.serving]: there is no profile `{unknown.pop()}`")
    # Every profile's table is checked, also those that this start does not use.
    models = {name: _validate(file, id, kind, stanza, name, table) for name, table in servings.items()}
    return models.get(profile) or _validate(file, id, kind, stanza, None, None)


def _validate(file: Path, id: str, kind: type[Model], stanza: dict[str, Any], profile: str | None, table: Any) -> Model:
    try:
        return kind.model_validate({**stanza, "id": id, "serving": table})
    except ValidationError as error:
        raise _finding(file, id, error, profile) from None


def _finding(file: Path, id: str, error: ValidationError, profile: str | None = None) -> CatalogError:
    """The first finding, with the place in the file."""
    finding = error.errors(include_url=False)[0]
    keys = [str(part) for part in finding["loc"]]
    place = f"{id}.serving.{profile}" if keys[:1] == ["serving"] else id
    key = ".".join(keys[1:] if keys[:1] == ["serving"] else keys)
    return CatalogError(f"{file.name} [{place}] `{key}`: {finding['msg'].lower()}")
