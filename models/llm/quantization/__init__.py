"""Weights in 8 bits, turned first so that rounding takes little away. They lie in `int8` below the others.

rotation.py      turns a decoder without changing what it computes

A token then reads half the bytes, and products take instructions for 8 bits. Plain rounding loses accuracy in the
activations: a few channels are a hundred times as large as all others, which share what is left of 255 steps. So the
scales of norms move into the products behind them, and three things are turned by orthogonal matrices, which spread
large channels over all (QuaRot, arXiv:2404.00456): the hidden state and the values of each head in the weights alone,
and the input of `down_proj` in the weights and in each step (`InputTurn`). No text is needed for any of it.

Weights and configuration are in compressed-tensors' form `int-quantized`: one scale a row of a weight, one a token.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.cpu import int8_kernel
from models.llm.quantization.rotation import BLOCK, turned_weights

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(f"parlance.{__name__}")

FOLDER = "int8"
TURNS = "turned_inputs"
"""Key of a configuration: products that get turned inputs in each step, and the size of their blocks."""
ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM")
"""Decoders with all norms before linear layers, and SiLU of a gate times `up_proj` as their MLP."""
MOST_PARAMETERS = 1_000_000_000
"""Larger ones need more memory than machines have on which it would matter."""
LARGEST = 127


def fits(config: Any, parameters: int) -> bool:
    """Says if a model of transformers can be turned: head sizes are powers of two, and it is not too large."""
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.architectures[0] in ARCHITECTURES and size & (size - 1) == 0 and parameters <= MOST_PARAMETERS


def fitting_folder(folder: Path, arguments: dict[str, Any], device: str) -> Path:
    """Returns the folder of weights in 8 bits, or `folder` itself if they would not be quicker; the log says why."""
    quantized = folder / FOLDER
    if int8_kernel(device, arguments.get("dtype", "auto")) is None:
        log.info("weights stay as they are: no kernel for 8 bits was measured to be quicker on this processor")
    elif not quantized.is_dir() or not turned_inputs(quantized):
        log.warning("`%s` has no weights in 8 bits: delete that folder and run `make weights`", folder)
    else:
        return quantized
    return folder


def turned_inputs(folder: Path) -> dict[str, int]:
    """The products in `folder` that have their inputs turned in each step, with the size of blocks."""
    config = folder / "config.json"
    return dict(json.loads(config.read_text("utf-8")).get(TURNS, {})) if config.is_file() else {}


def save(model: Any, tokenizer: Any, folder: Path, report: Callable[[float], object] = float) -> None:
    """Writes `model` (transformers, any float type) in 8 bits to `folder`, and leaves it without its weights.

    `report` is called with the share of weights that are rounded, from 0 to 1.
    """
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    tensors: dict[str, Tensor] = {}
    total, done = model.num_parameters(), 0
    with torch.no_grad():
        for name, tensor in turned_weights(model):
            if name.endswith("_proj.weight") or name == "lm_head.weight":
                tensors[name], tensors[f"{name}_scale"] = rounded(tensor)
            else:
                tensors[name] = tensor.bfloat16()
            done += tensor.numel()
            report(min(done / total, 1))
    model.to("meta")  # its memory is needed: safetensors copies what it writes
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    own = {"dtype": "bfloat16", "tie_word_embeddings": False, TURNS: {"down_proj": BLOCK}}
    config = model.config.to_dict() | own | {"quantization_config": quantization_config()}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    tokenizer.save_pretrained(folder)


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """`weight` (rows, channels), which is overwritten, in int8, and the scale of each row (rows, 1)."""
    import torch

    least, most = weight.aminmax(dim=1, keepdim=True)
    scale = torch.maximum(most, -least).clamp_min(1e-8) / LARGEST
    return weight.div_(scale).round_().to(torch.int8), scale


def quantization_config() -> dict[str, Any]:
    """compressed-tensors' words for all linear layers in 8 bits."""
    eight_bits = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear", "re:.*lm_head"],
        "weights": eight_bits | {"strategy": "channel", "dynamic": False},
        "input_activations": eight_bits | {"strategy": "token", "dynamic": True},
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": [],
        "config_groups": {"group_0": group},
    }
