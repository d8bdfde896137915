"""What we offer here: the catalogue, one TOML stanza per model, read once by `load`.

catalog/<noun>.toml     public facts of each model + `[<id>.serving.<profile>]`
presets/<id>.json       packs of questions for decisions, with labelled examples
<profile>.yaml          Serve config file of that profile: where and how the graph is deployed
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from contract.body import parse
from contract.catalog import CATALOG_TYPES, Catalog, Model
from contract.decisions import Preset
from contract.errors import ApiError

FOLDER = Path(__file__).parent
PROFILES = ("embedded", "cpu", "production", "twins")


class CatalogError(Exception):
    """A stanza that cannot be used; the sentence names file, stanza and key."""


def load(profile: str, folder: Path = FOLDER / "catalog") -> Catalog:
    """The catalogue with the `serving` tables of `profile`. Raises CatalogError."""
    if profile not in PROFILES:
        raise CatalogError(f"there is no profile `{profile}`; there are {', '.join(PROFILES)}")
    kinds = {noun: _read(folder / f"{noun}.toml", kind, profile) for noun, kind in CATALOG_TYPES.items()}
    return Catalog(profile=profile, presets=load_presets(), **kinds)


def load_presets(folder: Path = FOLDER / "presets") -> dict[str, Preset]:
    """Every pack of questions by id. Raises CatalogError."""
    return {file.stem: _preset(file) for file in sorted(folder.glob("*.json"))}


def _preset(file: Path) -> Preset:
    try:
        preset = parse(Preset, file.read_bytes())
    except ApiError as error:
        raise CatalogError(f"{file.name}: {error.message}") from None
    if preset.id != file.stem:
        raise CatalogError(f"{file.name}: the id is `{preset.id}`; it must be the name of the file")
    return preset


def _read(file: Path, kind: type[Model], profile: str) -> dict[str, Model]:
    try:
        stanzas = tomllib.loads(file.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{file.name}: {error}") from None
    return {id: _model(file, id, stanza, kind, profile) for id, stanza in stanzas.items()}


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
        finding = error.errors(include_url=False)[0]
        keys = [str(part) for part in finding["loc"]]
        place = f"{id}.serving.{profile}" if keys[:1] == ["serving"] else id
        key = ".".join(keys[1:] if keys[:1] == ["serving"] else keys)
        raise CatalogError(f"{file.name} [{place}] `{key}`: {finding['msg'].lower()}") from None
