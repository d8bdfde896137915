"""Weights of the model hub that stanzas may name: `repositories.toml`, and PARLANCE_HOME's own before it."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

from pydantic import Field, ValidationError

from contract.base import Frozen
from models.weights.files import WeightsError

SHIPPED = Path(__file__).with_name("repositories.toml")

USUAL = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
"""Files of a model that transformers or vLLM loads."""


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
        """As the manifest writes it."""
        return f"hub:{self.repository}"

    @property
    def licence_on_hub(self) -> str:
        """What the hub calls the licence."""
        return self.tag or self.licence.lower()

    def wants(self, name: str) -> bool:
        """Whether the file `name` is part of the model."""
        return any(fnmatch(name, one) for one in self.files) and not any(fnmatch(name, one) for one in self.without)


def repositories(home: Path) -> dict[str, Repository]:
    """Every repository by the name of its weights. Raises WeightsError for what cannot be read."""
    known: dict[str, Repository] = {}
    for path in (SHIPPED, home / "repositories.toml"):
        if not path.is_file():
            continue
        try:
            known |= {name: Repository.model_validate(row) for name, row in tomllib.loads(path.read_text()).items()}
        except (tomllib.TOMLDecodeError, ValidationError) as error:
            raise WeightsError(f"`{path}` cannot be read: {' '.join(str(error).split())}") from error
    return known
