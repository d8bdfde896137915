"""TOML files as stanzas, and stanzas as types. What is wrong with one is said with its file, place and key."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from contract.base import Frozen

Stanza = TypeVar("Stanza", bound=Frozen)


class CatalogError(Exception):
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
    found = read(file)
    for id, stanza in found.items():
        check_table(file, id, stanza)
    return found


def check_table(file: Path, place: str, value: Any) -> None:
    """Raises CatalogError for what is not a table."""
    if not isinstance(value, dict):
        raise CatalogError(f"{file.name} `{place}` must be a table")


def validated(kind: type[Stanza], values: dict[str, Any], file: Path, id: str, profile: str | None = None) -> Stanza:
    """`values` as a `kind`. `profile` says whose table `values["serving"]` is. Raises CatalogError."""
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
