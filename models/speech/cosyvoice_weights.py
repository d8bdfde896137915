"""Turns the official weights of CosyVoice 3 into files that cannot run code: `python -m MODULE SOURCE FOLDER`.

    llm.pt  flow.pt  hift.pt     pickles; read as plain tensors, written as safetensors
    cosyvoice3.yaml              names what is built of them; refused if it names anything but known parts
    *.onnx  CosyVoice-BlankEN/   copied

Run it with Parlance's own interpreter: the torch that CosyVoice pins (2.3.1) can be made to run code even by
`weights_only=True` (CVE-2025-32434). See docs/decisions/0009-cosyvoice-weights.md.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from models.weights.files import WeightsError, refuse_code, regular_files

RECIPE = "cosyvoice3.yaml"
NETWORKS = ("llm", "flow", "hift")
COPIED = ("campplus.onnx", "speech_tokenizer_v3.onnx", "flow.decoder.estimator.fp32.onnx")
TEXT_MODEL = "CosyVoice-BlankEN"
TEXT_MODEL_SUFFIXES = frozenset({".json", ".txt", ".safetensors"})

CALLED = re.compile(r"!(?:new|name|apply|module|include|applyref):\s*([^\s<#]+)")
"""Names that HyperPyYAML imports or calls while it reads the recipe."""

MAY_BE_CALLED = re.compile(
    r"(cosyvoice|matcha)(\.\w+)+|omegaconf\.DictConfig|(numpy\.)?random\.seed|torch\.(cuda\.)?manual_seed(_all)?"
)


def convert(source: Path, folder: Path) -> None:
    """Fills the new `folder`. Raises WeightsError if `source` lacks a file or holds one that is not to be trusted."""
    _check(source / RECIPE)
    folder.mkdir(parents=True)
    shutil.copyfile(source / RECIPE, folder / RECIPE)
    for name in COPIED:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    (folder / TEXT_MODEL).mkdir()
    for file in sorted((source / TEXT_MODEL).glob("*")):
        if file.suffix in TEXT_MODEL_SUFFIXES:
            shutil.copyfile(file, folder / TEXT_MODEL / file.name)
    for name in NETWORKS:
        _convert_network(source / f"{name}.pt", folder / f"{name}.safetensors")
    refuse_code(regular_files(folder))


def _check(recipe: Path) -> None:
    if not recipe.is_file():
        raise WeightsError(f"`{recipe}` is missing; the folder does not contain CosyVoice 3")
    for called in CALLED.findall(recipe.read_text("utf-8")):
        if not MAY_BE_CALLED.fullmatch(called):
            raise WeightsError(
                f"`{recipe}` asks for `{called}`, which is not a part of CosyVoice; nothing was converted"
            )


def _convert_network(source: Path, target: Path) -> None:
    import pickle

    import torch
    from safetensors.torch import save_file

    try:
        state: dict[str, Any] = torch.load(source, map_location="cpu", weights_only=True, mmap=True)
    except FileNotFoundError:
        raise WeightsError(f"`{source}` is missing") from None
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise WeightsError(f"`{source}` is not a plain state of a network; none of it was executed") from error
    if not all(isinstance(tensor, torch.Tensor) for tensor in state.values()):
        raise WeightsError(f"`{source}` contains more than tensors")
    # Tied weights share memory, which safetensors refuses. A vocoder saved amid its training has a prefix.
    save_file({name.replace("generator.", ""): part.clone().contiguous() for name, part in state.items()}, target)


if __name__ == "__main__":
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except WeightsError as refused:
        sys.exit(f"weights: {refused}")
