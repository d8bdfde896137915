"""Stands in for torchvision where tests run: its published build for a CPU is in an index of its own.

Transformers and vLLM import Gemma 4 and Qwen3.5 only where this package is. What they call of it is in
`transforms/v2/functional.py`, over torch; all else is missing, and says so by its name.
"""

__version__ = "0.28.0"
