"""Catalogue of what this server offers, one TOML stanza per model, read once by `load`.

stanzas.py              TOML files as stanzas, and what is wrong with one
voices.py               engines, voices, sentences, traits and designers: whether they fit together
catalog/<noun>.toml     public facts of each model + `[<id>.serving.<profile>]`
catalog/voices.toml     who speaks: one stanza per voice; sentences.toml: what they say in samples
catalog/voice_aliases.toml  names of other voices, and who speaks for them
catalog/traits.toml     what voices may be ordered to be; suggest.toml, public_figures.toml: how descriptions are read
presets/<id>.json       packs of questions for decisions, with labelled examples
<profile>.yaml          Serve config file of that profile: where and how the graph is deployed
ray.env                 environment of every Ray process
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from configs.stanzas import CatalogError, serving_tables, stanzas, validated
from configs.voices import check_designers, check_routing, load_aliases, load_sentences, load_traits, load_voices
from contract.body import parse
from contract.catalog import CATALOG_TYPES, Catalog, Model, SpeechModel, VoiceDesignModel
from contract.decisions.questions import Preset
from contract.errors import ApiError

__all__ = ["FOLDER", "PROFILES", "CatalogError", "load", "load_presets", "load_set_up", "profiles"]

log = logging.getLogger(f"parlance.{__name__}")

FOLDER = Path(__file__).parent


def profiles(folder: Path = FOLDER) -> tuple[str, ...]:
    """The name of every profile: it has a Serve config file."""
    return tuple(sorted(file.stem for file in folder.glob("*.yaml")))


PROFILES = profiles()


def load(profile: str, folder: Path = FOLDER / "catalog") -> Catalog:
    """The catalogue with the `serving` tables of `profile`. Raises CatalogError."""
    if profile not in PROFILES:
        raise CatalogError(f"there is no profile `{profile}`; the profiles are {', '.join(PROFILES)}")
    kinds: dict[str, Any] = {
        noun: _models(folder / f"{noun}.toml", kind, profile) for noun, kind in CATALOG_TYPES.items()
    }
    engines = kinds[SpeechModel.noun].values()
    check_routing(folder / f"{SpeechModel.noun}.toml", engines, datetime.now(UTC).date())
    voices = load_voices(folder / "voices.toml", engines)
    sentences = load_sentences(folder / "sentences.toml", engines)
    traits = load_traits(folder)
    designers = kinds[VoiceDesignModel.noun].values()
    check_designers(folder / f"{VoiceDesignModel.noun}.toml", designers, engines, sentences, traits)
    return Catalog(
        profile=profile,
        presets=load_presets(),
        voices=voices,
        voice_aliases=load_aliases(folder / "voice_aliases.toml", voices, engines),
        sentences=sentences,
        traits=traits,
        **kinds,
    )


def load_set_up(profile: str, environ: Mapping[str, str], without: Collection[str] = ()) -> Catalog:
    """The catalogue as a start with the variables `environ` sets it up. Raises CatalogError.

    It leaves out the models `without`, and those of a provider without its key, which the log names: what runs
    here must not wait for a secret of another party.
    """
    catalog = load(profile)
    deployed = {model.id: model for model in catalog.deployed()}
    if unknown := set(without) - {model.id for model in catalog.models()}:
        raise CatalogError(f"`without` names `{min(unknown)}`, which is no model; there are {', '.join(deployed)}")
    keyless = {id: variable for id, model in deployed.items() if (variable := _missing_key(model, environ))}
    for id, variable in keyless.items():
        log.warning("`%s` is switched off: it needs the key of its provider in `%s`", id, variable)
    return catalog.without({*without, *keyless})


def _missing_key(model: Model, environ: Mapping[str, str]) -> str | None:
    """The variable that must hold a provider's key, where it does not."""
    variable: str | None = model.serving.options.get("key_variable") if model.serving else None
    return variable if variable and not environ.get(variable, "").strip() else None


def load_presets(folder: Path = FOLDER / "presets") -> dict[str, Preset]:
    """Every pack of questions by id. Raises CatalogError."""
    return {file.stem: _preset(file) for file in sorted(folder.glob("*.json"))}


def _preset(file: Path) -> Preset:
    try:
        preset = parse(Preset, file.read_bytes())
    except ApiError as error:
        raise CatalogError(f"{file.name}: {error.message}") from None
    if preset.id != file.stem:
        raise CatalogError(f"{file.name}: the id is `{preset.id}`, but it must equal the name of the file")
    return preset


def _models(file: Path, kind: type[Model], profile: str) -> dict[str, Model]:
    return {id: _model(file, id, stanza, kind, profile) for id, stanza in stanzas(file).items()}


def _model(file: Path, id: str, stanza: dict[str, Any], kind: type[Model], profile: str) -> Model:
    servings = serving_tables(file, id, stanza.pop("serving", {}), PROFILES)
    # Every profile's table is checked, also those that this start does not use.
    models = {
        name: validated(kind, {**stanza, "id": id, "serving": table}, file, id, name)
        for name, table in servings.items()
    }
    model = models.get(profile) or validated(kind, {**stanza, "id": id, "serving": None}, file, id)
    window = model.serving.context_window if model.serving else None
    return model.model_copy(update={"context_window": window}) if window else model
