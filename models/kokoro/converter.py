"""Cuts Kokoro's network in two: the front, and the weights of the generator (`network.py` says what each does).

Named as a converter by a stanza of `models/weights/manifest.toml` and run as `python -m models.kokoro.converter FOLDER
OUT`. The front stays as it is published, so that each sound stays as long as it was. The generator's weights are read
out of the graph, and come by the names of their training.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.kokoro.network import FRONT, GENERATOR, WHOLE
from models.weights.files import WeightsError

if TYPE_CHECKING:
    import torch

INPUTS = ("tokens", "style", "speed")
FEATURES = "/decoder/decoder/decode.3/Div_4_output_0"
SOURCE = "/decoder/decoder/generator/Concat_3_output_0"

NODES, NAMES = "/decoder/decoder/generator/", "decoder.decoder.generator."
"""Prefixes of the generator's nodes and of their constants."""

BASIS, BASIS_SCALE = "stft.istft.stft.inverse_basis", 4
"""The last transform is published without its scale, which a node of its own applies."""


def convert(source: Path, out: Path) -> None:
    """Fills the new folder `out` from the published files. Raises WeightsError where they are not Kokoro's network."""
    import onnx
    from safetensors.torch import save_file

    shutil.copytree(source, out)
    published = source / WHOLE
    try:
        # The checker wants shapes that this graph does not name, and onnxruntime does not need.
        onnx.utils.extract_model(published, out / FRONT, list(INPUTS), [FEATURES, SOURCE], check_model=False)
        save_file(generator_weights(onnx.load(published)), out / GENERATOR)
    except (ValueError, KeyError) as error:
        raise WeightsError(f"`{published}` is not the network that is known as Kokoro: {error}") from error


def generator_weights(model: Any) -> dict[str, torch.Tensor]:
    """Weights by name: of convolutions in bfloat16, of what goes with them in float32."""
    import torch
    from onnx import numpy_helper

    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weights = {
        name.removeprefix(NAMES): torch.tensor(constant)
        for name, constant in constants.items()
        if name.startswith(NAMES) and (name.endswith(".bias") or ".alpha" in name)
    }
    weights[BASIS] = torch.tensor(constants[NAMES + BASIS]) * BASIS_SCALE
    for node in model.graph.node:
        module = node.name.removeprefix(NODES).rpartition("/")[0].removesuffix("/fc").replace("/", ".")
        if not node.name.startswith(NODES) or module.startswith("istft"):
            continue
        if node.op_type in ("Conv", "ConvTranspose"):
            weights[f"{module}.weight"] = torch.tensor(constants[node.input[1]]).bfloat16()
        elif node.op_type == "ConvInteger":
            weights[f"{module}.weight"] = _unquantised(node, constants).bfloat16()
        elif node.op_type == "MatMulInteger":
            weights[f"{module}.fc.weight"] = _unquantised(node, constants)
    return weights


def _unquantised(node: Any, constants: dict[str, Any]) -> torch.Tensor:
    """The weight of a node in 8 bits. Its zero point may be another node's of the same value."""
    import torch

    quantised, zero_point = (torch.tensor(constants[name]).float() for name in (node.input[1], node.input[3]))
    scale = torch.tensor(constants[node.input[1].removesuffix("_quantized") + "_scale"])
    return (quantised - zero_point) * scale


if __name__ == "__main__":
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except WeightsError as refused:
        sys.exit(f"weights: {refused}")
