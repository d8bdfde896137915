"""Llama and Qwen2 with tiny random weights, in the folders that vLLM loads, in bfloat16 and in int8.

They differ from each other where the short forward has to look: Qwen2 adds to queries, keys and values; this Llama has
twice as many queries as keys, and scales its angles.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.models import tiny_models

SIZES = tiny_models.TEXT | {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 128, "head_dim": 32}
ANGLES = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
INT8 = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["model.layers.0.mlp.down_proj"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
}
"""Weights by channel, activations by token, and one part of a layer that stays as it is."""


def llama(folder: Path) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    return _save(folder, lambda size: LlamaForCausalLM(LlamaConfig(vocab_size=size, rope_parameters=ANGLES, **SIZES)))


def qwen2(folder: Path) -> Path:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return _save(folder, lambda size: Qwen2ForCausalLM(Qwen2Config(vocab_size=size, **SIZES)))


def _save(folder: Path, make: Any) -> Path:
    import torch

    torch.manual_seed(1)
    model = make(len(tiny_models.tokenizer(folder)))
    for name, values in model.named_parameters():
        if name.endswith("bias") or "norm" in name:  # which begin as zeros and ones
            values.data = torch.rand_like(values) + 0.5
    tiny_models.save(model, folder)
    return folder


def int8(source: Path, folder: Path) -> Path:
    """Writes the twin in `source` to the new `folder`, in the form that weights of eight bits have."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder)
    tensors = load_file(source / "model.safetensors")
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        if name.removesuffix(".weight") not in INT8["ignore"]:
            weight = tensors[name].float()
            scale = weight.abs().amax(1, keepdim=True) / 127
            tensors[name] = (weight / scale).round().to(torch.int8)
            tensors[f"{name}_scale"] = scale
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"quantization_config": INT8}))
    return folder
