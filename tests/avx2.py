"""Makes the processor look like one with AVX2 and nothing newer: `pytest -p tests.avx2 FILE ...`.

It decides which instructions run. Caches, memory and clock stay those of this processor.
"""

import os

INSTRUCTIONS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2",
}
NEWER = ("avx512", "avx10", "avx_", "amx")
os.environ.update(INSTRUCTIONS)  # each library reads its own when it is loaded

import torch  # noqa: E402

FEATURES = {name: has and not name.startswith(NEWER) for name, has in torch.cpu.get_capabilities().items()}
torch.cpu.get_capabilities = lambda: FEATURES
for name in ("_is_avx512_supported", "_is_avx512_bf16_supported", "_is_amx_tile_supported", "_is_vnni_supported"):
    if hasattr(torch.cpu, name):
        setattr(torch.cpu, name, lambda: False)
