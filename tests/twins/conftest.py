"""Fixtures of the twins."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="session")
def libraries() -> None:
    """torch and the heavy half of transformers, imported once. To look for garbage meanwhile takes some seconds."""
    gc.disable()
    try:
        import torch  # noqa: F401
        from transformers import AutoModel, GenerationMixin  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()
