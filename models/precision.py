"""The floating-point type that a model runs in: bfloat16 halves memory, but a CPU without its instructions emulates it.

On such a CPU (AVX2 only) vLLM took 5 times as long to read a prompt in bfloat16 as in float32, and a third of the
tokens a second came out of 8 streams.
"""

from __future__ import annotations

BFLOAT16_FEATURES = ("avx512_bf16", "amx_bf16", "bf16", "arm_bf16")
"""Names that torch gives to instructions for bfloat16."""


def fitting_dtype(name: str, device: str) -> str:
    """The dtype `name`, or `float32` on a CPU that would only emulate it."""
    import torch

    if device != "cpu" or name not in ("bfloat16", "float16"):
        return name
    features = torch.cpu.get_capabilities()
    has_instructions = name == "bfloat16" and any(features.get(feature) for feature in BFLOAT16_FEATURES)
    return name if has_instructions else "float32"
