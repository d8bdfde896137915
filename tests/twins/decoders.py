"""Llama and Qwen2 with tiny random weights, in the folders that vLLM loads, in bfloat16 and in int8.

They differ from each other where the short forward has to look: Qwen2 adds to queries, keys and values; this Llama has
twice as many queries as keys, and scales its angles.
"""

from pathlib import Path
from typing import Any

from models.llm import quantization
from tests.models import tiny_models

SIZES = tiny_models.TEXT | {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 128, "head_dim": 32}
ANGLES = {
    "rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


def llama(folder: Path) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    return _save(folder, lambda size: LlamaForCausalLM(LlamaConfig(vocab_size=size, rope_parameters=ANGLES, **SIZES)))


def qwen2(folder: Path, **changes: Any) -> Path:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return _save(folder, lambda size: Qwen2ForCausalLM(Qwen2Config(vocab_size=size, **SIZES | changes)))


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
    """Writes the twin in `source` to the new `folder` in 8 bits, turned and balanced."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    quantization.save(model, AutoTokenizer.from_pretrained(source), folder)
    return folder
