"""TOML files as stanzas, and stanzas as types. What is wrong with one is said with its file, place and key."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from contract.base import Frozen, ProfileError

Stanza = TypeVar("Stanza", bound=Frozen)


class CatalogError(ProfileError):
    """A catalogue that cannot be used; the sentence names file, stanza and key."""


def read(file: Path) -> dict[str, Any]:
    """A whole file. Raises CatalogError."""
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError:
        raise CatalogError(f"{file.name}: there is no such file in {file.parent}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CatalogError(f"{file.name}: {error}") from None


def stanzas(file: Path) -> dict[str, dict[str, Any]]:
    """The tables of a file by id. Raises CatalogError."""
    tables = read(file)
    for id, stanza in tables.items():
        check_table(file, id, stanza)
    return tables


def serving_tables(file: Path, id: str, tables: Any, profiles: Collection[str]) -> dict[str, dict[str, Any]]:
    """The `serving` tables of a stanza by profile, each completed by the one that its `like` names.

    Fields beside `like` take precedence, each as a whole. Raises CatalogError.
    """
    check_table(file, f"{id}.serving", tables)
    if unknown := tables.keys() - set(profiles):
        raise CatalogError(f"{file.name} [{id}.serving]: there is no profile `{min(unknown)}`")
    for profile, table in tables.items():
        check_table(file, f"{id}.serving.{profile}", table)
    complete = {profile: table for profile, table in tables.items() if "like" not in table}
    resolved = dict(tables)
    for profile in tables.keys() - complete.keys():
        fields = dict(tables[profile])
        if (model := fields.pop("like")) not in tuple(complete):
            allowed = ", ".join(f"`{name}`" for name in complete) or "none, because each table says `like`"
            place = f"{file.name} [{id}.serving.{profile}] `like`"
            raise CatalogError(f"{place}: there is no complete table `{model}`; allowed: {allowed}")
        resolved[profile] = complete[model] | fields
    return resolved


def check_table(file: Path, place: str, value: Any) -> None:
    """Raises CatalogError for what is not a table."""
    if not isinstance(value, dict):
        raise CatalogError(f"{file.name} `{place}` must be a table")


def validated(kind: type[Stanza], values: dict[str, Any], file: Path, id: str, profile: str | None = None) -> Stanza:
    """`values` as a `kind`. `values["serving"]` is the table of `profile`. Raises CatalogError."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        finding = error.errors(include_url=False)[0]
    keys = [str(part) for part in finding["loc"]]
    place = id
    if profile and keys[:1] == ["serving"]:
        place, keys = f"{id}.serving.{profile}", keys[1:]
    message = finding["msg"][:1].lower() + finding["msg"][1:]
    key = f" `{'.'.join(keys)}`" if keys else ""
    raise CatalogError(f"{file.name} [{place}]{key}: {message}")
