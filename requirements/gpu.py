"""Imports what `gpu.lock` brings, on a machine without a GPU: `make check-gpu`, by the Python that has it installed.

Exit 1, with the module's name, where libraries of the lock do not load together, or torch is not the build with CUDA.
"""

from __future__ import annotations

import importlib
import sys
import time

MODULES = (
    "torch",
    "transformers",
    "faster_whisper",
    "onnxruntime",
    "vllm.engine.arg_utils",
    "vllm.v1.engine.async_llm",
    "ray.serve",
)


def main() -> None:
    """Prints a line for each module."""
    for name in MODULES:
        began_s = time.monotonic()
        try:
            importlib.import_module(name)
        except (ImportError, OSError, RuntimeError) as error:
            sys.exit(f"gpu.lock: {name} cannot be imported: {error}")
        print(f"{name:28} {time.monotonic() - began_s:5.1f} s", flush=True)
    import torch

    if torch.version.cuda is None:
        sys.exit(f"gpu.lock: torch {torch.__version__} is not built for CUDA")
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}; a GPU here: {torch.cuda.is_available()}")


if __name__ == "__main__":
    main()
